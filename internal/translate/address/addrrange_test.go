package address

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
)

func TestParseRange(t *testing.T) {
	for _, c := range []struct {
		text, want string
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
		r, err := ParseRange(c.text)
		if err != nil || r.String() != c.want || r.Size() != c.size || r.Buggy() != c.buggy {
			t.Errorf("%q: %s, size %d, buggy %d, %v", c.text, r, r.Size(), r.Buggy(), err)
		}
	}
	for _, text := range []string{
		"", "x", "192.0.2", "192.0.2.1/28", "192.0.2.0/33", "192.0.2.9-192.0.2.8", "192.0.2.1-2001:db8::1", "192.0.2.1-", "-", "fe80::1%eth0/64", "fe80::1%eth0", "fe80::1", "127.0.0.1", "::ffff:192.0.2.1", "fe80::1%eth0-fe80::2",
		"127.0.0.1/32", "0.0.0.0/0", "126.0.0.0-128.0.0.0", "224.0.0.0/24", "255.255.255.255/32", "169.254.1.0/24", "::/0", "::1/128", "ff02::/64", "fe80::/64", "::ffff:0:0/96",
	} {
		if r, err := ParseRange(text); err == nil {
			t.Errorf("%q is taken for %s", text, r)
		}
	}
}

// TestBuggyIsCounted compares the formula with a count of the addresses one by one.
func TestBuggyIsCounted(t *testing.T) {
	base := netip.MustParseAddr("192.0.1.250")
	for from := range 12 {
		for length := range 600 {
			r := Range{From: base, To: base}
			for range from {
				r.From = r.From.Next()
			}
			r.To = r.From
			want := uint64(0)
			for range length {
				r.To = r.To.Next()
			}
			for a := r.From; a.Compare(r.To) <= 0; a = a.Next() {
				if IsBuggy(a) {
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
	var ranges []Range
	for _, text := range []string{"192.0.2.8/29", "192.0.2.0/29", "192.0.2.4-192.0.2.5", "198.51.100.0/31", "192.0.2.17-192.0.2.17"} {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, r)
	}
	if got := fmt.Sprint(MergeRanges(ranges)); got != "[192.0.2.0-192.0.2.15 192.0.2.17 198.51.100.0-198.51.100.1]" {
		t.Error(got)
	}
}
