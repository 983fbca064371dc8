package operate

import (
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/delta"
)

func TestRevisionThatAPersonMeans(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	list := []v1.Revision{
		{Epoch: 4, Number: 9, At: at(100)},
		{Epoch: 4, Number: 5, At: at(90)},
		{Epoch: 3, Number: 1042, At: at(80)},
		{Epoch: 3, Number: 7, At: at(70)},
		{Epoch: 3, Number: 3, At: at(65)},
		{Epoch: 4, First: true, At: at(60)},
	}
	for _, c := range []struct {
		text, problem string
		want          int
	}{
		{"9", "", 0},
		{"10", "", 0}, // it changed endpoints only
		{"8", "", 1},
		{"4/8", "", 1},
		{"3/1042", "", 2},
		{"3/1041", "", 3},
		{"start", "", 5},
		{at(95).UTC().Format(time.RFC3339), "", 1},
		{at(62).UTC().Format(time.RFC3339), "", 5},
		{at(55).UTC().Format(time.RFC3339), "is not known: the oldest state is of 1970-01-01T00:01:00Z", 0},
		{"11", "no revision 11 yet: the plane is at 10", 0},
		{"1042", "a plane before it had one, 3/1042", 0},
		{"5/1", "no revision 5/1 yet", 0},
		{"4", "no revision of routing up to 4", 0},
		{"3", "no revision of routing up to 3; a plane before it had one, 3/3", 0},
		{"2/4", "no revision of routing up to 2/4", 0},
		{"five", "want a number", 0},
		{"3/five", "want a number", 0},
		{"-1", "want a number", 0},
	} {
		got, err := FindRevision(list, delta.Revision{Epoch: 4, Number: 10}, c.text)
		if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: %v", c.text, err)
		}
		if c.problem == "" && !got.At.Equal(list[c.want].At) {
			t.Errorf("%s: %+v", c.text, got)
		}
	}
}
