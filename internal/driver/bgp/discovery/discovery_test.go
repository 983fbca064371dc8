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

// clocked is a table, and the time that it is told.
type clocked struct {
	*testing.T
	*table
	now time.Time
}

func newClocked(t *testing.T) *clocked { return &clocked{t, newTable(), time.Unix(1000, 0)} }

// expect lets time pass, in which those answer each solicitation that do, and compares when routers were asked, in
// seconds, and who is there then.
func (c *clocked) expect(what string, d time.Duration, answer []netip.Addr, asked []int, routers ...netip.Addr) {
	c.Helper()
	var times []int
	for s := range int(d / time.Second) {
		if c.step(c.now) {
			times = append(times, s)
			for _, a := range answer {
				c.hear(a)
			}
		}
		c.now = c.now.Add(time.Second)
	}
	if !slices.Equal(times, asked) || !slices.Equal(c.routers(), routers) {
		c.Errorf("%s: asked at %v with routers %v, want %v and %v", what, times, c.routers(), asked, routers)
	}
}

// TestRoutersAreForgottenWhenTheyDoNotAnswer holds what is asked, when, and who is gone then.
func TestRoutersAreForgottenWhenTheyDoNotAnswer(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.ask()
	c.expect("at first", 12*time.Second, nil, []int{0, 4, 8})
	c.expect("while nobody answers", 72*time.Second, nil, []int{60, 64, 68})
	if !c.hear(first) || c.hear(first) {
		t.Error("a router is news once")
	}
	up, lost := Session{Router: first, Up: true}, Session{Router: first}
	c.settle(up)
	c.expect("with a session", time.Hour, nil, nil, first)
	c.hear(second)
	c.expect("another one comes, and goes", 20*time.Second, nil, []int{0, 4, 8}, first)
	c.settle(lost)
	c.settle(up)
	c.expect("the session was lost for a moment", time.Minute, nil, []int{0, 4, 8}, first)
	c.settle(lost)
	c.expect("the session was lost, and the router answers", 20*time.Second, []netip.Addr{first}, []int{0, 4, 8}, first)
}

// TestNobodyTakesTheSessionOver holds that the router of the session is there while the session is up, and after it
// until three solicitations went unanswered, whoever else speaks.
func TestNobodyTakesTheSessionOver(t *testing.T) {
	t.Parallel()
	up, lost := Session{Router: first, Up: true}, Session{Router: first}
	both, other := []netip.Addr{first, second}, []netip.Addr{second}
	c := newClocked(t)
	c.hear(first)
	c.settle(up)
	c.hear(second)
	c.expect("another one makes us ask, and the first is silent", time.Hour, other, []int{0, 4, 8}, both...)
	c.settle(lost)
	c.expect("the session is lost, and the third solicitation is not over", 12*time.Second, other, []int{0, 4, 8}, both...)
	c.expect("the first did not answer", time.Second, other, nil, second)
	c.settle(up)
	c.expect("it has a session again, unheard", time.Hour, other, nil, both...)
	c.settle(lost)
	c.expect("it answers late", 9*time.Second, other, []int{0, 4, 8}, both...)
	c.hear(first)
	c.expect("it answered", 30*time.Second, other, nil, both...)
	c.settle(Session{Router: second, Up: true})
	c.settle(Session{Router: second})
	c.expect("the session after is with the second", 13*time.Second, []netip.Addr{first}, []int{0, 4, 8}, first)

	c = newClocked(t) // as after the interface was away
	c.hear(second)
	c.settle(lost)
	c.expect("the interface comes back", 12*time.Second, other, []int{0, 4, 8}, both...)
	c.expect("its router does not", time.Second, other, nil, second)
	c.settle(Session{})
	c.expect("the peer is no longer wanted", 5*time.Second, other, []int{0, 4}, second)
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
