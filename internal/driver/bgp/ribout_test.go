package bgp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// table is what a router that does all that UPDATEs say has of a peer: the attributes of each prefix.
type table struct {
	routes map[string]string
	stale  map[string]bool // kept over a restart (RFC 4724) or since a BoRR (RFC 7313), and not sent again yet
}

func newTable() *table { return &table{routes: map[string]string{}, stale: map[string]bool{}} }

func prefixFamily(p string) packet.Family { return family(netip.MustParsePrefix(p)) }

// spoil marks what it has of a family as stale, drop drops what still is.
func (t *table) spoil(f packet.Family) {
	for p := range t.routes {
		t.stale[p] = t.stale[p] || prefixFamily(p) == f
	}
}

func (t *table) drop(f packet.Family) {
	for p := range t.routes {
		if t.stale[p] && prefixFamily(p) == f {
			delete(t.routes, p)
			delete(t.stale, p)
		}
	}
}

// take does what a message says.
func (t *table) take(m *packet.BGPMessage) {
	switch body := m.Body.(type) {
	case *packet.BGPRouteRefresh:
		f := packet.NewFamily(body.AFI, body.SAFI)
		switch body.Demarcation {
		case 1:
			t.spoil(f)
		case 2:
			t.drop(f)
		}
	case *packet.BGPUpdate:
		if end, f := body.IsEndOfRib(); end {
			t.drop(f)
			return
		}
		var attributes []string
		reach, unreach := body.NLRI, body.WithdrawnRoutes
		for _, a := range body.PathAttributes {
			switch v := a.(type) {
			case *packet.PathAttributeMpReachNLRI:
				reach = append(reach, v.Value...)
				attributes = append(attributes, v.Nexthop.String())
			case *packet.PathAttributeMpUnreachNLRI:
				unreach = append(unreach, v.Value...)
			default:
				attributes = append(attributes, a.String())
			}
		}
		slices.Sort(attributes)
		for _, n := range unreach {
			delete(t.routes, n.NLRI.String())
			delete(t.stale, n.NLRI.String())
		}
		for _, n := range reach {
			t.routes[n.NLRI.String()] = strings.Join(attributes, " ")
			delete(t.stale, n.NLRI.String())
		}
	}
}

// The same of the parts that need no network: thousands of orders of changes, requests, connections that end after any
// number of messages, and new ones.
func TestRibOutIsWhatWasWritten(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 2))
	a := agreed{fourOctets: true, families: map[packet.Family]bool{packet.RF_IPv4_UC: true, packet.RF_IPv6_UC: true}}
	conf := model.Peer{LocalASN: ourASN, PeerASN: theirASN, IPv4: true, IPv6: true, NextHop6: netip.MustParsePrefix("2001:db8::1/128")}
	families := []packet.Family{packet.RF_IPv4_UC, packet.RF_IPv6_UC}
	for order := range 300 {
		graceful, marks := random.IntN(2) == 0, random.IntN(2) == 0
		router, rib := newTable(), newRibOut()
		wanted := map[netip.Prefix]route{}
		// sync writes at most so many messages, and says whether that was all.
		first := true
		sync := func(most int, again bool) bool {
			steps, err := rib.steps(wanted, again, marks)
			if err != nil {
				t.Fatal(err)
			}
			if first {
				for _, f := range families {
					steps = append(steps, step{message: packet.NewEndOfRib(f)})
				}
			}
			for i, s := range steps {
				if i == most {
					return false
				}
				raw, err := encode(s.message, a)
				if err != nil {
					t.Fatal(err)
				}
				m, err := decode(raw[18], raw[packet.BGP_HEADER_LENGTH:], true)
				if err != nil {
					t.Fatal(err)
				}
				router.take(m)
				rib.wrote(s)
			}
			if again {
				rib.answered()
			}
			first = false
			return true
		}
		for range 1 + random.IntN(20) {
			switch random.IntN(3) {
			case 0:
				rib.ask(families[random.IntN(2)])
			case 1:
				var list []Advertisement
				for i := range 12 {
					if p := prefixes(fmt.Sprintf("203.0.113.%d/32", i), fmt.Sprintf("2001:db8:1::%x/128", i))[i%2]; random.IntN(2) == 0 {
						med := uint32(random.IntN(3))
						p.Path.MED = &med
						list = append(list, p)
					}
				}
				wanted, _ = routes(conf, a, netip.MustParseAddr("192.0.2.1"), nil, list)
			}
			if random.IntN(2) == 0 {
				continue // more happens before anything is written
			}
			if sync(random.IntN(12), random.IntN(2) == 0) {
				if held, has := len(rib.held), len(router.routes); held != has {
					t.Fatalf("seed %d, order %d: it is believed to hold %d prefixes and has %d", seed, order, held, has)
				}
				continue
			}
			rib, first = newRibOut(), true // a write failed: so did the connection
			for _, f := range families {
				router.spoil(f)
				if !graceful {
					router.drop(f)
				}
			}
		}
		sync(1<<20, random.IntN(2) == 0)
		var has, want []string
		for p := range router.routes {
			has = append(has, p+" med "+medOf(router.routes[p]))
		}
		for p, r := range wanted {
			want = append(want, fmt.Sprintf("%s med %d", p, *medIn(r)))
		}
		slices.Sort(has)
		slices.Sort(want)
		if !slices.Equal(has, want) {
			t.Fatalf("seed %d, order %d: the router lacks %s and has too much %s", seed, order, minus(want, has), minus(has, want))
		}
	}
}

func medOf(attributes string) string {
	_, med, _ := strings.Cut(attributes, "Med: ")
	med, _, _ = strings.Cut(med, "}")
	return med
}

func medIn(r route) *uint32 {
	for _, a := range r.attributes {
		if m, is := a.(*packet.PathAttributeMultiExitDisc); is {
			return &m.Value
		}
	}
	return nil
}

// modelRouter is a router that asks for its routes again and again, stops reading, and loses its connection, as a
// test wants.
type modelRouter struct {
	*fake
	mu    sync.Mutex
	table *table
	line  *line
	held  sync.Mutex // while it is locked, the router does not read
}

func newModelRouter(t *testing.T, graceful bool, capabilities ...packet.ParameterCapabilityInterface) *modelRouter {
	r := &modelRouter{table: newTable()}
	families := []packet.Family{packet.RF_IPv4_UC, packet.RF_IPv6_UC}
	r.fake = newFake(t, func(l *line) {
		m := openOf(theirASN, 30, "192.0.2.1", families...)
		parameter := m.Body.(*packet.BGPOpen).OptParams[0].(*packet.OptionParameterCapability)
		parameter.Capability = append(parameter.Capability, capabilities...)
		if l.read() == nil {
			return
		}
		l.send(m, packet.NewBGPKeepAliveMessage())
		if l.read() == nil {
			return
		}
		r.mu.Lock()
		r.line = l
		for _, f := range families {
			r.table.spoil(f)
			if !graceful {
				r.table.drop(f)
			}
		}
		r.mu.Unlock()
		for {
			r.held.Lock()
			r.held.Unlock() //nolint:staticcheck // to wait for whoever holds it
			m := l.read()
			if m == nil {
				return
			}
			r.mu.Lock()
			if r.line == l {
				r.table.take(m)
			}
			r.mu.Unlock()
		}
	})
	return r
}

// refresh asks for all routes of a family so many times.
func (r *modelRouter) refresh(f packet.Family, times int) {
	r.mu.Lock()
	l := r.line
	r.mu.Unlock()
	if l == nil {
		return
	}
	afi, safi := f.Afi(), f.Safi()
	for range times {
		l.send(packet.NewBGPRouteRefreshMessage(afi, 0, safi))
	}
}

// cut ends the connection.
func (r *modelRouter) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.line != nil {
		_ = r.line.conn.SetLinger(0)
		_ = r.line.conn.Close()
		r.line = nil
	}
}

// has returns the prefixes that the router has, with the attribute that the test changes.
func (r *modelRouter) has() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for p, attributes := range r.table.routes {
		out = append(out, p+" med "+medOf(attributes))
	}
	slices.Sort(out)
	return out
}

// Whatever the order of changes, requests to send all again, reconnections and pauses of the router: it ends up with
// what is wanted, no prefix more and none less.
func TestRouterHoldsWhatIsWanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		graceful     bool
		capabilities []packet.ParameterCapabilityInterface
	}{
		"plain":            {},
		"graceful":         {graceful: true},
		"enhanced-refresh": {capabilities: []packet.ParameterCapabilityInterface{packet.NewCapEnhancedRouteRefresh()}},
		"both":             {graceful: true, capabilities: []packet.ParameterCapabilityInterface{packet.NewCapEnhancedRouteRefresh()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 1))
			t.Logf("seed %d", seed)
			r := newModelRouter(t, c.graceful, c.capabilities...)
			conf := r.peer("router")
			conf.IPv6, conf.RestartTime, conf.NextHop6 = true, 15*time.Second, netip.MustParsePrefix("2001:db8::1/128")
			conf.ConnectRetry = 20 * time.Millisecond
			s := speak(t, only(conf))
			s.established("router")
			for round := range 60 {
				var want []string
				for step := 1 + random.IntN(12); step > 0; step-- {
					switch random.IntN(6) {
					case 0:
						r.refresh(packet.RF_IPv4_UC, 1+random.IntN(20))
					case 1:
						r.refresh(packet.RF_IPv6_UC, 1+random.IntN(20))
					case 2:
						if random.IntN(8) == 0 && round%4 == 0 {
							r.cut()
						}
					case 3:
						if random.IntN(3) == 0 {
							r.held.Lock()
							time.AfterFunc(time.Duration(random.IntN(5))*time.Millisecond, r.held.Unlock)
						}
					}
					w := only(conf)
					w.Prefixes, want = nil, nil
					for i := range 40 {
						if random.IntN(2) == 0 {
							continue
						}
						p := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 32)
						if i%2 == 1 {
							p = netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%x", i)), 128)
						}
						med := uint32(random.IntN(2) + 1)
						v := Advertisement{Prefix: p}
						v.Path.MED = &med
						w.Prefixes = append(w.Prefixes, v)
						want = append(want, fmt.Sprintf("%s med %d", p, med))
					}
					s.Set(w)
				}
				slices.Sort(want)
				deadline := time.Now().Add(patience)
				for !slices.Equal(r.has(), want) {
					if time.Now().After(deadline) {
						got := r.has()
						t.Fatalf("in round %d the router lacks %s and has too much %s", round, minus(want, got), minus(got, want))
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
}

func minus(a, b []string) []string {
	set := map[string]bool{}
	for _, x := range a {
		set[x] = true
	}
	for _, x := range b {
		delete(set, x)
	}
	return slices.Sorted(maps.Keys(set))
}
