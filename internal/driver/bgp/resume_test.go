package bgp

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bfd"

	"fairlead.dev/internal/model"
)

// steadyPackets are missed by who is gone, and not by who has to wait for a busy machine.
const steadyPackets = 10

// resumable has a router with plain BFD that helps a graceful restart, and a speaker that keeps its BFD sessions in
// the directory dir and whose route has come to the router. The router misses it after so many packets, one in 300 ms,
// and is missed after 3 s: a busy machine stops a router for one.
func (s *site) resumable(dir string, restart time.Duration, packets uint8) (*child, Speaking) {
	s.Helper()
	n, p := s.neighbour(), s.peer()
	n.bfd, n.packets, n.restart, p.RestartTime, p.HoldTime, n.hold = true, steadyPackets, true, restart, 10*time.Minute, 600
	p.BFD = &model.BFD{Interval: 300 * time.Millisecond, Multiplier: packets}
	s.start(s.T, s.box, n)
	w := speaking(p, route4)
	c := startChildIn(s.T, s.edge, w, dir)
	c.watched()
	s.has(route4, s.edge.Addr4().String())
	eventually(s.T, "the session is remembered", func() bool {
		raw, _ := os.ReadFile(filepath.Join(dir, "bfd.json"))
		return strings.Contains(string(raw), s.box.Addr4().String())
	})
	return c, w
}

// watched waits until the session is established and BFD up.
func (c *child) watched() model.Session {
	c.t.Helper()
	return c.until("BFD up", func(x model.Session) bool { return x.State == model.SessionEstablished && x.BFD == "up" })
}

// unmoved fails the test if the route went away.
func (s *site) unmoved(events func() string) {
	s.Helper()
	if strings.Contains(events(), "Deleted "+vip4) {
		s.Errorf("the route went away:\n%s", events())
	}
}

// A speaker that leaves and comes back, and one that is killed and follows at once, are no failure to a router with
// plain BFD.
func bfdRestart(s *site) {
	for name, end := range map[string]func(*child){
		"left": func(c *child) {
			c.stop("leave")
			<-time.After(5 * time.Second) // longer than BFD would wait
		},
		"killed": (*child).kill,
	} {
		s.Run(name, func(t *testing.T) {
			s := &site{T: t, router: s.router, edge: s.edge, box: s.box}
			forget(t, s.box)
			dir := t.TempDir()
			c, w := s.resumable(dir, 2*time.Minute, steadyPackets)
			before := s.bfd(t)
			events := s.monitor()
			end(c)
			c = startChildIn(t, s.edge, w, dir)
			c.watched()
			s.has(route4, s.edge.Addr4().String())
			s.unmoved(events)
			if after := s.bfd(t); bfdChanged(before, after) {
				t.Errorf("the router's BFD session was %q and is %q: it noticed", before, after)
			}
			if x := c.watched(); x.Flaps != 0 {
				t.Errorf("the new session flapped: %+v", x)
			}
		})
	}
}

// bfdChanged says whether a router noticed that BFD was away between two looks at its session. BIRD reckons since
// when it is back from two clocks, which it does not read at one moment.
func bfdChanged(before, after string) bool {
	const form = "Up since 15:04:05.000"
	from, err := time.Parse(form, before)
	if err != nil {
		return before == "" || before != after
	}
	to, err := time.Parse(form, after)
	return err != nil || to.Sub(from).Abs() > 200*time.Millisecond
}

// Nobody comes back: BFD finds out, and the routes go, though the router would wait for minutes after a mere restart.
// FRR does wait: it looks at BFD only while the BGP session is up, and the kernel of a machine ends that when its
// processes are killed. A machine whose kernel ends nothing is dead to both.
func bfdKilled(s *site) {
	c, _ := s.resumable(s.TempDir(), 2*time.Minute, 3)
	before := s.bfd(s.T)
	c.kill()
	if s.bfdEndsRestart() {
		s.lacks(route4)
		return
	}
	eventually(s.T, "BFD finds out", func() bool { return bfdChanged(before, s.bfd(s.T)) })
	s.stale(route4)
}

// A machine that is dead is missed at once, and one whose speaker came back just now as well.
func bfdDead(s *site) {
	dir := s.TempDir()
	c, w := s.resumable(dir, 2*time.Minute, 3)
	c.stop("leave")
	c = startChildIn(s.T, s.edge, w, dir)
	c.watched()
	s.has(route4, s.edge.Addr4().String())
	c.signal(syscall.SIGSTOP) // its kernel says nothing either: the connection stays
	s.lacks(route4)
	c.signal(syscall.SIGCONT)
	c.watched()
	s.has(route4, s.edge.Addr4().String())
}

// An agent that leaves and does not come back is missed after its restart time.
func bfdGone(s *site) {
	c, _ := s.resumable(s.TempDir(), 5*time.Second, 3)
	c.stop("leave")
	s.stale(route4)
	s.lacks(route4)
}

// over ends a speaker for good and waits until the router's BGP has taken notice of the end of BFD, too: one that hears
// of it late ends the session of the next speaker for it.
func (s *site) over(c *child) {
	s.Helper()
	c.stop("cease")
	eventually(s.T, "the router's BGP knows that BFD ended", func() bool { return s.bfdOver(s.T) })
}

// What does not fit is of no harm: the sessions begin anew.
func bfdStale(s *site) {
	dir := s.TempDir()
	file := filepath.Join(dir, "bfd.json")
	c, w := s.resumable(dir, 2*time.Minute, steadyPackets)
	raw, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	s.over(c)
	s.lacks(route4)
	for name, content := range map[string]string{
		"as it was":            string(raw),
		"of another boot":      edited(s.T, raw, func(f *bfdFile) { f.Boot = "another" }),
		"old":                  edited(s.T, raw, func(f *bfdFile) { f.Awake -= time.Hour }),
		"of the future":        edited(s.T, raw, func(f *bfdFile) { f.Awake += time.Hour }),
		"another's":            edited(s.T, raw, func(f *bfdFile) { f.Sessions[0].Mine++; f.Sessions[0].Yours++ }),
		"of an address gone":   edited(s.T, raw, func(f *bfdFile) { f.Sessions[0].Local = f.Sessions[0].Local.Next().Next().Next() }),
		"of a peer not wanted": edited(s.T, raw, func(f *bfdFile) { f.Sessions[0].Remote = f.Sessions[0].Remote.Next().Next().Next() }),
		"half":                 string(raw[:len(raw)/2]),
		"garbage":              "\x00\xff{",
		"empty":                "",
	} {
		s.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			c := startChildIn(t, s.edge, w, dir)
			if x := c.watched(); x.Flaps != 0 {
				t.Errorf("the session flapped: %+v", x)
			}
			s := &site{T: t, router: s.router, edge: s.edge, box: s.box}
			s.has(route4, s.edge.Addr4().String())
			s.over(c)
		})
	}
}

// A session that was resumed ends when nobody wants its peer watched; until then it waits.
func TestResumedForNobody(t *testing.T) {
	dir := t.TempDir()
	us, them := netip.MustParseAddr("127.77.0.1"), netip.MustParseAddr("127.77.0.2")
	boot, awake, err := sinceBoot()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(bfdFile{Boot: boot, Awake: awake, Sessions: []bfdRecord{{
		Local: us, Remote: them, Port: bfdFirstSource, Mine: 7, Yours: 8, Interval: 50 * time.Millisecond, Multiplier: 3,
		Hold: time.Minute, Detect: time.Minute,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bfd.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	peer, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(them, bfdPort)))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	hears := func(want bfd.StateType) {
		t.Helper()
		buf := make([]byte, 128)
		for {
			if err := peer.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			n, err := peer.Read(buf)
			if err != nil {
				t.Fatalf("the peer did not hear %s: %v", want, err)
			}
			var h bfd.BFDHeader
			if err := h.UnmarshalBinary(buf[:n]); err != nil {
				t.Fatal(err)
			}
			if h.MyDiscriminator != 7 || h.YourDiscriminator != 8 {
				t.Fatalf("the peer heard %+v, want the discriminators of before", h)
			}
			if h.State == want {
				return
			}
		}
	}
	s := New(Config{StateDir: dir})
	s.Resume()
	hears(bfd.StateUp)
	s.dropOrphans() // not yet
	s.resumed = s.resumed.Add(-orphanTime)
	s.Set(Speaking{Peers: []model.Peer{{Name: "p", Address: them, BFD: &model.BFD{}}}})
	s.dropOrphans()
	if len(s.bfd.orphans) != 1 {
		t.Fatal("a session with a peer that is wanted ended")
	}
	s.Set(Speaking{Peers: []model.Peer{{Name: "p", Address: them}}})
	s.dropOrphans()
	hears(bfd.StateAdminDown)
	if left := s.bfd.memory.load(); len(left) > 0 || len(s.bfd.orphans) > 0 {
		t.Errorf("it is still remembered: %+v", left)
	}
}

func edited(t *testing.T, raw []byte, change func(*bfdFile)) string {
	t.Helper()
	var f bfdFile
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	change(&f)
	out, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
