package policy

import (
	"reflect"
	"testing"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

// TestSlashesOfPolicies holds that two policies together never lead to a redirect for slashes, which could lead to
// another host.
func TestSlashesOfPolicies(t *testing.T) {
	keep := true
	for _, c := range []struct {
		own, class ClientSettings
		want       *model.ClientSettings
	}{
		{want: nil},
		{own: ClientSettings{escaped: v1alpha1.UnescapeAndRedirect}, class: ClientSettings{escaped: v1alpha1.KeepUnchanged}, want: nil},
		{own: ClientSettings{keepSlashes: &keep}, want: &model.ClientSettings{KeepSlashes: true, EscapedSlashes: model.SlashesReject}},
		{own: ClientSettings{keepSlashes: &keep}, class: ClientSettings{escaped: v1alpha1.UnescapeAndRedirect}, want: &model.ClientSettings{KeepSlashes: true, EscapedSlashes: model.SlashesReject}},
		{own: ClientSettings{keepSlashes: &keep}, class: ClientSettings{escaped: v1alpha1.KeepUnchanged}, want: &model.ClientSettings{KeepSlashes: true, EscapedSlashes: model.SlashesKeep}},
		{class: ClientSettings{escaped: v1alpha1.UnescapeAndForward}, want: &model.ClientSettings{EscapedSlashes: model.SlashesUnescape}},
	} {
		got := c.own.Under(c.class).At(model.ProtocolHTTP)
		if (got == nil) != (c.want == nil) || got != nil && !reflect.DeepEqual(*got, *c.want) {
			t.Errorf("%+v under %+v: %+v, want %+v", c.own, c.class, got, c.want)
		}
	}
}
