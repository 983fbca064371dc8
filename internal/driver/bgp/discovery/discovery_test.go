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

func (c *clocked) hear(a netip.Addr) (fresh bool) { return c.table.hear(a, c.now) }

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

// TestANewSenderTakesThePlaceOfTheLeastProven holds who gives way when as many are remembered as can be.
func TestANewSenderTakesThePlaceOfTheLeastProven(t *testing.T) {
	t.Parallel()
	at := func(n int) netip.Addr { return netip.AddrFrom16([16]byte{0xfe, 0x80, 15: byte(n)}) }
	list := func(from, to int) (out []netip.Addr) {
		for n := from; n <= to; n++ {
			out = append(out, at(n))
		}
		return out
	}
	for name, s := range map[string]struct {
		before []Session    // one after the other
		answer []netip.Addr // of the eight, in this order, a second apart
		gone   int
	}{
		"nobody answers":              {gone: 1},
		"the oldest one answers":      {answer: list(1, 1), gone: 2},
		"all answer":                  {answer: list(1, 8), gone: 1},
		"all answer, the third first": {answer: []netip.Addr{at(3), at(1), at(2), at(4), at(5), at(6), at(7), at(8)}, gone: 3},
		"a session with the oldest":   {before: []Session{{at(1), true}}, gone: 2},
		"after it":                    {before: []Session{{at(1), true}, {at(1), false}}, gone: 2},
		"after two":                   {before: []Session{{at(1), true}, {at(2), true}, {at(2), false}}, gone: 3},
		"after all":                   {before: []Session{{at(8), true}, {at(7), true}, {at(6), true}, {at(5), true}, {at(4), true}, {at(3), true}, {at(2), true}, {at(1), true}}, gone: 2},
	} {
		c := newClocked(t)
		for _, a := range list(1, maxRouters) {
			c.hear(a)
			c.now = c.now.Add(time.Millisecond)
		}
		c.expect(name+": eight", time.Second, nil, []int{0}, list(1, maxRouters)...)
		for _, a := range s.answer {
			c.hear(a)
			c.now = c.now.Add(time.Second)
		}
		for _, x := range s.before {
			c.settle(x)
		}
		if !c.hear(at(9)) || c.hear(at(10)) {
			t.Errorf("%s: one sender in an interval takes a place", name)
		}
		want := slices.DeleteFunc(list(1, 9), func(a netip.Addr) bool { return a == at(s.gone) })
		if got := c.routers(); !slices.Equal(got, want) {
			t.Errorf("%s: %v are there, want %v", name, got, want)
		}
		c.now = c.now.Add(askInterval)
		if !c.hear(at(10)) || len(c.routers()) != maxRouters {
			t.Errorf("%s: after an interval, %v are there", name, c.routers())
		}
	}
}

// TestFlood holds that what a link can make us remember and send is bounded, how often it changes who is there, and
// that the router of the session is there, and has a place when it comes back.
func TestFlood(t *testing.T) {
	t.Parallel()
	c, n := newClocked(t), 0
	flood := func() (asked, changed int) {
		for range 60000 {
			n++
			before := c.routers()
			c.hear(netip.AddrFrom16([16]byte{0xfe, 0x80, 1, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}))
			if c.step(c.now) {
				asked++
			}
			if !slices.Equal(before, c.routers()) {
				changed++
			}
			c.now = c.now.Add(time.Millisecond)
		}
		return asked, changed
	}
	for _, phase := range []struct {
		name    string
		session Session
		there   bool
	}{
		{"without a session", Session{}, false},
		{"with a session", Session{first, true}, true},
		{"after the session", Session{first, false}, false},
	} {
		c.settle(phase.session)
		asked, changed := flood()
		got := c.routers()
		if len(got) > maxRouters || asked > 16 || changed > 60 {
			t.Errorf("%s, in a minute of flood, %d routers are remembered, they changed %d times, and %d solicitations were sent", phase.name, len(got), changed, asked)
		}
		if slices.Contains(got, first) != phase.there {
			t.Errorf("%s: after a minute of flood, %v are there", phase.name, got)
		}
	}
	if !c.hear(first) {
		t.Error("the router of the last session comes back, and has no place")
	}
	flood()
	if !c.hear(first) {
		t.Error("it is silent for a minute, and has no place")
	}
	c.settle(Session{})
	c.settle(Session{second, true})
	if got := c.routers(); len(got) > maxRouters || !slices.Contains(got, second) {
		t.Errorf("a session with another one: %v are there", got)
	}
}
