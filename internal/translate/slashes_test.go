package translate

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// TestSlashNotesFollow holds that a policy that comes to say something else of slashes changes what routes say.
func TestSlashNotesFollow(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/path-slashes.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot.New()
	readYAML(t, s, archive.Files[0].Data)
	tr := Converge(input.Config{}, s)
	for _, action := range []v1alpha1.EscapedSlashesAction{v1alpha1.KeepUnchanged, v1alpha1.RejectRequest, v1alpha1.KeepUnchanged} {
		policy := s.ClientPolicies[snapshot.Name{Namespace: "team", Name: "keep"}].DeepCopy()
		policy.Spec.Path.EscapedSlashesAction = action
		key, err := s.Set(policy)
		if err != nil {
			t.Fatal(err)
		}
		tr.Apply(s, []snapshot.Key{key})
		fresh := full(input.Config{}, s)
		if want, got := text(fresh), text(tr); want != got {
			t.Errorf("%s: %s", action, lineDiff(want, got))
		}
		notes := 1 // at the shared listener
		if action != v1alpha1.KeepUnchanged {
			notes++
		}
		if got := strings.Count(text(tr), `"/@scope%2Fname" never matches`); got != notes {
			t.Errorf("%s: %d notes, want %d", action, got, notes)
		}
	}
}
