package discovery

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var (
	mac    = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	first  = netip.MustParseAddr("fe80::1")
	second = netip.MustParseAddr("fe80::2")
)

func TestMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message []byte
		kind    uint8 // 0: refused
	}{
		"our solicitation":              {solicitation(mac), typeSolicitation},
		"our advertisement":             {advertisement(mac), typeAdvertisement},
		"without a hardware address":    {advertisement(nil), typeAdvertisement},
		"with an option that we do not": {append(advertisement(mac), 250, 1, 0, 0, 0, 0, 0, 0), typeAdvertisement},
		"nothing":                       {nil, 0},
		"a type":                        {[]byte{typeAdvertisement}, 0},
		"another type":                  {[]byte{135, 0, 0, 0, 0, 0, 0, 0}, 0},
		"another code":                  {[]byte{typeSolicitation, 1, 0, 0, 0, 0, 0, 0}, 0},
		"cut off":                       {advertisement(nil)[:15], 0},
		"half an option":                {append(advertisement(nil), 1), 0},
		"an option of no length":        {append(advertisement(nil), 1, 0, 0, 0, 0, 0, 0, 0), 0},
		"an option beyond the end":      {append(advertisement(nil), 1, 2, 0, 0, 0, 0, 0, 0), 0},
		"an option of 255 units":        {append(append(advertisement(nil), 1, 255), make([]byte, 255*8-3)...), 0},
	} {
		kind, err := check(c.message)
		if (err == nil) != (c.kind != 0) || err == nil && kind != c.kind {
			t.Errorf("%s: got %d, %v", name, kind, err)
		}
	}
	if b := advertisement(mac); b[5] != 0 || b[6] != 0 || b[7] != 0 {
		t.Errorf("the advertisement %x has flags, or a lifetime that makes this machine a default router", b)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(solicitation(mac))
	f.Add(advertisement(mac))
	f.Add(append(append(advertisement(nil), 1, 255), make([]byte, 255*8-2)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, err := check(b)
		if err == nil && kind != typeSolicitation && kind != typeAdvertisement {
			t.Errorf("took type %d", kind)
		}
	})
}

// TestRoutersAreForgottenWhenTheyDoNotAnswer holds what is asked, when, and who is gone then.
func TestRoutersAreForgottenWhenTheyDoNotAnswer(t *testing.T) {
	t.Parallel()
	table, now := newTable(), time.Unix(1000, 0)
	asked := func(d time.Duration) (times []int) {
		for s := range int(d / time.Second) {
			if table.step(now) {
				times = append(times, s)
			}
			now = now.Add(time.Second)
		}
		return times
	}
	expect := func(what string, got, want []int, routers ...netip.Addr) {
		t.Helper()
		if !slices.Equal(got, want) || !slices.Equal(table.routers(), routers) {
			t.Errorf("%s: asked at %v with routers %v, want %v and %v", what, got, table.routers(), want, routers)
		}
	}
	table.ask()
	expect("at first", asked(12*time.Second), []int{0, 4, 8})
	expect("while nobody answers", asked(72*time.Second), []int{60, 64, 68})
	if !table.hear(first) || table.hear(first) {
		t.Error("a router is news once")
	}
	table.settle(true)
	expect("with a session", asked(time.Hour), nil, first)
	table.hear(second)
	expect("another one comes, and the first is silent", asked(10*time.Second), []int{0, 4, 8}, first, second)
	table.hear(second)
	expect("the first is gone", asked(10*time.Second), nil, second)
	table.settle(false)
	table.settle(true)
	expect("the session was lost for a moment", asked(10*time.Second), []int{0, 4, 8}, second)
	table.hear(second)
	expect("it answered", asked(time.Hour), nil, second)
}

// TestFlood holds that what a link can make us remember and send is bounded.
func TestFlood(t *testing.T) {
	t.Parallel()
	table, now, asked := newTable(), time.Unix(1000, 0), 0
	for i := range 60000 {
		table.hear(netip.AddrFrom16([16]byte{0xfe, 0x80, 14: byte(i >> 8), 15: byte(i)}))
		if table.step(now) {
			asked++
		}
		now = now.Add(time.Millisecond)
	}
	if n := len(table.routers()); n > maxRouters || asked > 16 {
		t.Errorf("in a minute of flood, %d routers are remembered, and %d solicitations were sent", n, asked)
	}
}
