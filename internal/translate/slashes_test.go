package translate

import (
	"testing"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

// TestSlashesOfPolicies: what two policies say of slashes never comes to a redirect that could lead to
// another host.
func TestSlashesOfPolicies(t *testing.T) {
	keep := true
	for _, c := range []struct {
		own, class clientSettings
		want       *model.ClientSettings
	}{
		{want: nil},
		{own: clientSettings{escaped: v1alpha1.UnescapeAndRedirect}, class: clientSettings{escaped: v1alpha1.KeepUnchanged}, want: nil},
		{own: clientSettings{keepSlashes: &keep}, want: &model.ClientSettings{KeepSlashes: true, EscapedSlashes: model.SlashesReject}},
		{own: clientSettings{keepSlashes: &keep}, class: clientSettings{escaped: v1alpha1.UnescapeAndRedirect}, want: &model.ClientSettings{KeepSlashes: true, EscapedSlashes: model.SlashesReject}},
		{own: clientSettings{keepSlashes: &keep}, class: clientSettings{escaped: v1alpha1.KeepUnchanged}, want: &model.ClientSettings{KeepSlashes: true, EscapedSlashes: model.SlashesKeep}},
		{class: clientSettings{escaped: v1alpha1.UnescapeAndForward}, want: &model.ClientSettings{EscapedSlashes: model.SlashesUnescape}},
	} {
		got := c.own.under(c.class).at(model.ProtocolHTTP)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%+v under %+v: %+v, want %+v", c.own, c.class, got, c.want)
		}
	}
}
