package bgp

import (
	"encoding/json"
	"fmt"
	"testing"
)

// frrRoute reads what `show bgp ... json` says of a prefix.
func frrRoute(t *testing.T, text string) (seen, bool) {
	t.Helper()
	var table struct {
		Paths []struct {
			Stale  bool
			MED    *uint32 `json:"metric"`
			ASPath struct {
				Segments []struct{ List []uint32 }
			}
			LocalPref      *uint32 `json:"locPrf"`
			Community      struct{ String string }
			LargeCommunity struct{ String string }
			NextHops       []struct {
				IP    string
				Scope string
			} `json:"nexthops"`
		}
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		t.Fatalf("vtysh says %q: %v", text, err)
	}
	if len(table.Paths) == 0 {
		return seen{}, false
	}
	p := table.Paths[0]
	s := seen{Communities: p.Community.String, Large: p.LargeCommunity.String, Stale: p.Stale}
	for _, seg := range p.ASPath.Segments {
		s.ASPath = append(s.ASPath, seg.List...)
	}
	if p.MED != nil {
		s.MED = fmt.Sprint(*p.MED)
	}
	if p.LocalPref != nil {
		s.LocalPref = fmt.Sprint(*p.LocalPref)
	}
	for _, h := range p.NextHops {
		if h.Scope != "link-local" {
			s.NextHop = h.IP
		}
	}
	return s, true
}
