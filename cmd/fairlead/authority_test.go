package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/plane"
)

func TestAuthorityStatusSaysWhoIsBehind(t *testing.T) {
	made, away := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	until := made.AddDate(10, 0, 0)
	for name, c := range map[string]struct {
		status plane.AuthorityStatus
		says   []string
		not    string
	}{
		"alone": {
			plane.AuthorityStatus{Authorities: []plane.AuthorityInfo{{Pin: "pin-1", Since: made, Until: until, Shown: true, Signs: true, Machines: 3}}},
			[]string{"pin-1", "in use", "2026-01-02T03:04:05Z", "2036-01-02T03:04:05Z", "3"},
			"renewed",
		},
		"machines are behind": {
			plane.AuthorityStatus{
				Authorities: []plane.AuthorityInfo{{Pin: "pin-1", Shown: true, Machines: 2}, {Pin: "pin-2", Signs: true, Machines: 1}},
				Behind:      []plane.MachineBehind{{Machine: "edge-1"}, {Machine: "edge-2", Away: away}}, Strangers: []string{"edge-9"},
			},
			[]string{"to be retired", "next", "Not renewed yet (2)", "  edge-1\n", "  edge-2, away since 2026-05-06T07:08:09Z\n", "--machine NAME, and --role backend for one with backends only):\n  edge-9\n"},
			"Every machine",
		},
		"all have renewed": {
			plane.AuthorityStatus{Authorities: []plane.AuthorityInfo{{Pin: "pin-1", Shown: true}, {Pin: "pin-2", Signs: true, Machines: 3}}},
			[]string{"Every machine has renewed", "fairlead authority retire"},
			"Not renewed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := writeAuthorities(&out, c.status); err != nil {
				t.Fatal(err)
			}
			for _, says := range c.says {
				if !strings.Contains(out.String(), says) {
					t.Errorf("it does not say %q:\n%s", says, out.String())
				}
			}
			if strings.Contains(out.String(), c.not) {
				t.Errorf("it says %q:\n%s", c.not, out.String())
			}
		})
	}
}

func TestRetirementNamesWhatEnds(t *testing.T) {
	c := &cobra.Command{}
	var out, errs strings.Builder
	c.SetOut(&out)
	c.SetErr(&errs)
	writeRetirement(c, plane.Retirement{})
	if out.String()+errs.String() != "" {
		t.Errorf("of none it says %s%s", out.String(), errs.String())
	}
	writeRetirement(c, plane.Retirement{Pin: "pin-1", Left: []string{"edge-1"}, Tokens: []plane.TokenInfo{{ID: "aaaaaaaaaa", Machine: "edge-2", Role: "edge"}, {ID: "bbbbbbbbbb", Machine: "node-7", Role: "backend"}}})
	if out.String() != "authority pin-1 is retired\n" {
		t.Errorf("it says %s", out.String())
	}
	for _, says := range []string{
		"machine edge-1 has to join again", "token create --machine edge-1, and --role backend for one with backends only\n",
		"token aaaaaaaaaa of machine edge-2 carried its pin, and is revoked", "token create --machine edge-2\n", "token create --machine node-7 --role backend\n",
	} {
		if !strings.Contains(errs.String(), says) {
			t.Errorf("it does not warn %q:\n%s", says, errs.String())
		}
	}
}
