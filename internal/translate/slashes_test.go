package translate

import (
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
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
		if (got == nil) != (c.want == nil) || got != nil && !reflect.DeepEqual(*got, *c.want) {
			t.Errorf("%+v under %+v: %+v, want %+v", c.own, c.class, got, c.want)
		}
	}
}

// TestSlashNotesFollow holds that a policy that comes to say something else of slashes changes what routes say.
func TestSlashNotesFollow(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/path-slashes.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot.New()
	readYAML(t, s, archive.Files[0].Data)
	tr := Settle(Config{}, s)
	for _, action := range []v1alpha1.EscapedSlashesAction{v1alpha1.KeepUnchanged, v1alpha1.RejectRequest, v1alpha1.KeepUnchanged} {
		policy := s.ClientPolicies[snapshot.Name{Namespace: "team", Name: "keep"}].DeepCopy()
		policy.Spec.Path.EscapedSlashesAction = action
		key, err := s.Set(policy)
		if err != nil {
			t.Fatal(err)
		}
		tr.Apply(s, []snapshot.Key{key})
		full, _ := Full(Config{}, s)
		if want, got := text(full), text(tr); want != got {
			t.Errorf("%s: %s", action, lineDiff(want, got))
		}
		notes := 1 // at the shared listener
		if action != v1alpha1.KeepUnchanged {
			notes++
		}
		if got := strings.Count(text(tr), `"/@scope%2Fname" takes no request`); got != notes {
			t.Errorf("%s: %d notes, want %d", action, got, notes)
		}
	}
}
