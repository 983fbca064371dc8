package main

import (
	"strings"
	"testing"

	"fairlead.dev/internal/model"
)

func TestRevisionThatAPersonMeans(t *testing.T) {
	list := []model.Revision{{Number: 9}, {Number: 5}, {First: true}}
	for _, c := range []struct {
		text, problem string
		want          model.Revision
	}{
		{"9", "", list[0]},
		{"10", "", list[0]}, // it changed endpoints only
		{"8", "", list[1]},
		{"start", "", list[2]},
		{"11", "no revision 11 yet: the plane is at 10", model.Revision{}},
		{"4", "no revision of routing up to 4", model.Revision{}},
		{"five", "want a number", model.Revision{}},
		{"-1", "want a number", model.Revision{}},
	} {
		got, err := findRevision(list, 10, c.text)
		if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: %v", c.text, err)
		}
		if got.Number != c.want.Number || got.First != c.want.First {
			t.Errorf("%s: %+v", c.text, got)
		}
	}
}
