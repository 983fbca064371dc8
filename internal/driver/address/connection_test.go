package address

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("not at %s: %v", at, err) // a machine without IPv6
			continue
		}
		defer l.Close()
		here := netip.MustParseAddrPort(l.Addr().String())
		has := func(want int) {
			t.Helper()
			deadline := time.Now().Add(30 * time.Second)
			for {
				counts, err := Connections(here, netip.AddrPortFrom(here.Addr(), 1), netip.MustParseAddrPort("192.0.2.1:80"))
				if err != nil {
					t.Fatal(err)
				}
				if counts[here] == want && len(counts) == 3 {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("connections are %v, want %d at %s and none elsewhere", counts, want, here)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		has(0)
		for range 2 {
			c, err := net.Dial("tcp", here.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		has(2)
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		has(1)
	}
}
