package console

import (
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

// TestOldestRevisionIsShown holds that the oldest state that is known stands last, however
// many revisions are left out.
func TestOldestRevisionIsShown(t *testing.T) {
	var list []v1.Revision
	for n := uint64(6); n > 0; n-- {
		list = append(list, v1.Revision{Epoch: 2, Number: n, At: time.Unix(int64(n), 0), Changes: 1})
	}
	list[5] = v1.Revision{Epoch: 2, First: true, At: time.Unix(1, 0), LetGo: 7}
	for most, want := range map[int][]string{
		0: {"6", "5", "4", "3", "2", "start"},
		2: {"6", "5", "... 3 older ones: --all prints them", "start"},
		5: {"6", "5", "4", "3", "2", "start"},
	} {
		var b strings.Builder
		if err := WriteRevisions(&b, list, most); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")[1:]
		if len(lines) != len(want) || !strings.HasSuffix(b.String(), "7 revisions before it were let go\n") {
			t.Fatalf("at most %d:\n%s", most, b.String())
		}
		for i, w := range want {
			if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, w) {
				t.Errorf("at most %d, line %d: %s, want %s", most, i, got, w)
			}
		}
	}
}
