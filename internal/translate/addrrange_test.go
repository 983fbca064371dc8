package translate

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/vip"
)

func TestParseRange(t *testing.T) {
	for _, c := range []struct {
		text, Want string
		size       uint64
		buggy      uint64
	}{
		{"192.0.2.0/28", "192.0.2.0-192.0.2.15", 16, 1},
		{"192.0.2.9/32", "192.0.2.9", 1, 0},
		{"192.0.2.9", "192.0.2.9", 1, 0},
		{"2001:db8::9", "2001:db8::9", 1, 0},
		{"10.0.0.0/8", "10.0.0.0-10.255.255.255", 1 << 24, 1 << 17},
		{"192.0.2.254-192.0.3.1", "192.0.2.254-192.0.3.1", 4, 2},
		{"192.0.2.255 - 192.0.2.255", "192.0.2.255", 1, 1},
		{"2001:db8::/126", "2001:db8::-2001:db8::3", 4, 0},
		{"2001:db8::/64", "2001:db8::-2001:db8::ffff:ffff:ffff:ffff", math.MaxUint64, 0},
		{"2001:db8::/35", "2001:db8::-2001:db8:1fff:ffff:ffff:ffff:ffff:ffff", math.MaxUint64, 0},
		{"2001:db8::ff00-2001:db8::1:00ff", "2001:db8::ff00-2001:db8::1:ff", 0x200, 0},
	} {
		r, err := address.ParseRange(c.text)
		if err != nil || r.String() != c.Want || r.Size() != c.size || r.Buggy() != c.buggy {
			t.Errorf("%q: %s, size %d, buggy %d, %v", c.text, r, r.Size(), r.Buggy(), err)
		}
	}
	for _, text := range []string{
		"", "x", "192.0.2", "192.0.2.1/28", "192.0.2.0/33", "192.0.2.9-192.0.2.8", "192.0.2.1-2001:db8::1", "192.0.2.1-", "-", "fe80::1%eth0/64", "fe80::1%eth0", "fe80::1", "127.0.0.1", "::ffff:192.0.2.1", "fe80::1%eth0-fe80::2",
		"127.0.0.1/32", "0.0.0.0/0", "126.0.0.0-128.0.0.0", "224.0.0.0/24", "255.255.255.255/32", "169.254.1.0/24", "::/0", "::1/128", "ff02::/64", "fe80::/64", "::ffff:0:0/96",
	} {
		if r, err := address.ParseRange(text); err == nil {
			t.Errorf("%q is taken for %s", text, r)
		}
	}
}

// Addresses are counted one by one, and by the formula.
func TestBuggyIsCounted(t *testing.T) {
	base := netip.MustParseAddr("192.0.1.250")
	for from := range 12 {
		for length := range 600 {
			r := address.Range{From: base, To: base}
			for range from {
				r.From = r.From.Next()
			}
			r.To = r.From
			want := uint64(0)
			for range length {
				r.To = r.To.Next()
			}
			for a := r.From; a.Compare(r.To) <= 0; a = a.Next() {
				if address.IsBuggy(a) {
					want++
				}
			}
			if got := r.Buggy(); got != want || r.Size() != uint64(length)+1 {
				t.Fatalf("%s has %d that are buggy of %d, want %d", r, got, r.Size(), want)
			}
		}
	}
}

func TestMergeRanges(t *testing.T) {
	var ranges []address.Range
	for _, text := range []string{"192.0.2.8/29", "192.0.2.0/29", "192.0.2.4-192.0.2.5", "198.51.100.0/31", "192.0.2.17-192.0.2.17"} {
		r, err := address.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, r)
	}
	if got := fmt.Sprint(address.MergeRanges(ranges)); got != "[192.0.2.0-192.0.2.15 192.0.2.17 198.51.100.0-198.51.100.1]" {
		t.Error(got)
	}
}

// The first candidates spread evenly, and the loss of a machine moves its own VIPs only.
func TestCandidates(t *testing.T) {
	s := &fleet.Selection{}
	for i := range 5 {
		s.Machines = append(s.Machines, fmt.Sprintf("machine-%d", i))
	}
	less := &fleet.Selection{Machines: slices.Clone(s.Machines[1:])}
	cordoned := &fleet.Selection{Machines: s.Machines, Cordoned: s.Machines[:1]}
	first := map[string]int{}
	const vips = 1000
	vip := netip.MustParseAddr("192.0.2.0")
	for range vips {
		list := s.Candidates(vip)
		first[list[0]]++
		without := slices.DeleteFunc(slices.Clone(list), func(m string) bool { return m == "machine-0" })
		if !slices.Equal(less.Candidates(vip), without) {
			t.Fatalf("%s: %v, and without machine-0 %v", vip, list, less.Candidates(vip))
		}
		if got := cordoned.Candidates(vip); !slices.Equal(got, append(without, "machine-0")) {
			t.Fatalf("%s: %v with machine-0 cordoned", vip, got)
		}
		vip = vip.Next()
	}
	for m, n := range first {
		if n < vips/5*3/4 || n > vips/5*5/4 {
			t.Errorf("%s is the first candidate of %d of %d", m, n, vips)
		}
	}
}

// A pool gives away what its status can hold, without walking through a /64.
func TestAssignmentLimit(t *testing.T) {
	tr, s := entrance(t, 0, vip.AssignmentLimit+5)
	status := tr.result().Statuses[input.Object(snapshot.KindAddressPool, snapshot.Name{Name: "edge"})].AddressPool
	if len(status.Assignments) != vip.AssignmentLimit {
		t.Fatalf("%d assignments", len(status.Assignments))
	}
	held := 0
	for n := range s.Gateways {
		if tr.result().Statuses[input.Object(snapshot.KindGateway, n)].Hold != nil {
			held++
		}
	}
	// Every Gateway takes one address of each family.
	if want := vip.AssignmentLimit + 5 - vip.AssignmentLimit/2; held != want {
		t.Errorf("%d Gateways are held, want %d", held, want)
	}
}
