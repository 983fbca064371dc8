package crd_test

import (
	"strings"
	"testing"
)

// TestPoolsAreChecked holds that the API refuses addresses that the planes would refuse, and says what to write instead.
func TestPoolsAreChecked(t *testing.T) {
	for _, c := range []struct{ addresses, want string }{
		{"203.0.113.0/28, 203.0.113.16-203.0.113.20, '203.0.113.99 - 203.0.113.100', 203.0.113.255/32, 203.0.113.30, '2001:db8:2::1'", ""},
		{"'2001:db8::/120', '2001:db8:1::9-2001:db8:1::10', '2001:DB8:0:2:0:0:0:1-2001:db8:0:2::1', '::2-1:2:3:4:5:6:7:8', '2001:db8::-2001:db8::ff'", ""},
		{"203.0.113.999/28", "must be a network like"},
		{"203.0.113.0/33", "must be a network like"},
		{"'2001:db8::/129'", "must be a network like"},
		{"'::ffff:192.0.2.0/120'", "must be a network like"},
		{"203.0.113.5/28", "has bits set behind the prefix length"},
		{"'2001:db8::5/64'", "bits set behind the prefix length"},
		{"203.0.113", "or an address"},
		{"203.0.113.999", "or an address"},
		{"'::ffff:192.0.2.1'", "or an address"},
		{"gateway", "should match"},
		{"127.0.0.1", "that no client can reach"},
		{"'fe80::1'", "that no client can reach"},
		{"203.0.113.20-203.0.113.16", "first address first"},
		{"203.0.113.100-203.0.113.20", "first address first"},
		{"203.0.113.16-203.0.113.256", "a range like"},
		{"203.0.113.16-203.0.113.020", "a range like"},
		{"'203.0.113.16-2001:db8::1'", "of one family"},
		{"127.0.0.0/24", "that no client can reach"},
		{"0.0.0.0/0", "that no client can reach"},
		{"224.0.0.1-224.0.0.9", "that no client can reach"},
		{"'fe80::/64'", "that no client can reach"},
		{"'::1/128'", "that no client can reach"},
	} {
		problems := judge(t, "addresspools", "addresses: ["+c.addresses+"]")
		switch {
		case c.want == "" && len(problems) > 0:
			t.Errorf("[%s] is refused: %v", c.addresses, problems.ToAggregate())
		case c.want != "" && (len(problems) == 0 || !strings.Contains(problems.ToAggregate().Error(), c.want)):
			t.Errorf("[%s]: got %v, want %q", c.addresses, problems.ToAggregate(), c.want)
		case c.want != "" && strings.Contains(problems.ToAggregate().Error(), "conversion error"):
			t.Errorf("[%s] is refused by the way rules are evaluated: %v", c.addresses, problems.ToAggregate())
		}
	}
}
