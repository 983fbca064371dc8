package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
)

// healthSite is a survivalSite whose load balancers' wires are tapped.
type healthSite struct {
	*survivalSite
	dying []*lab.Machine // those of the backends
	taps  []func()
	fresh *load.Run

	began, failed atomic.Int64

	mu   sync.Mutex
	last map[string]map[netip.Addr]time.Time // first packets of connections, by load balancer and backend's machine
	all  map[netip.Addr][]time.Time          // the same of all load balancers
}

func buildHealth(ctx context.Context, o HealthOptions, mode SurvivalMode) (*healthSite, error) {
	plain, err := buildSurvival(ctx, o.NetworkOptions, "bench-health", o.Router, mode, layout{balancers: healthEdges, backends: healthNodes})
	if err != nil {
		return nil, err
	}
	s := &healthSite{survivalSite: plain, dying: plain.nodes, last: map[string]map[netip.Addr]time.Time{}, all: map[netip.Addr][]time.Time{}}
	if mode == SurvivalProxies {
		s.dying = plain.edges
	}
	for _, e := range s.edges {
		seen := map[netip.Addr]time.Time{}
		s.last[e.Name()] = seen
		stop, err := e.Tap(func(x lab.Frame) {
			if to, is := tunnelledSYN(x.Data); is {
				s.mu.Lock()
				defer s.mu.Unlock()
				seen[to] = x.At
				s.all[to] = append(s.all[to], x.At)
			}
		})
		if err != nil {
			return nil, errors.Join(err, s.end(ctx))
		}
		s.taps = append(s.taps, stop)
	}
	return s, nil
}

func (s *healthSite) end(ctx context.Context) error {
	if s.fresh != nil {
		s.fresh.Stop()
	}
	for _, stop := range s.taps {
		stop()
	}
	return s.down(ctx)
}

// deaths are the ways in which a backend ends: its process is killed, so that its machine's
// kernel refuses connections, or the machine vanishes, so that nothing answers.
func (s *healthSite) deaths() []death {
	return []death{
		{
			"its process is killed",
			func(_ context.Context, n *lab.Machine) error {
				s.servers[n.Name()].Kill9()
				return nil
			},
			s.startBackend,
		},
		{"its machine vanishes", vanish, appear},
	}
}

func vanish(_ context.Context, n *lab.Machine) error { return n.SetBlackhole(true) }

func appear(_ context.Context, n *lab.Machine) error { return n.SetBlackhole(false) }

// settle waits until every load balancer sends new connections to every backend of another
// machine again, and then so long, at least two intervals, that all who check have seen it well.
func (s *healthSite) settle(ctx context.Context, c HealthCheck, more time.Duration) error {
	began := s.Now()
	if err := s.Await(ctx, "all load balancers to use all backends", func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.edges {
			for _, n := range s.dying {
				if n != e && !s.last[e.Name()][n.Addr4()].After(began) {
					return fmt.Errorf("%s sends nothing to %s", e.Name(), n.Name())
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return pauseFor(ctx, 2*c.Interval+more)
}

// quiet waits until that time, and until nothing has been sent to a node for 1.5 s.
func (s *healthSite) quiet(ctx context.Context, until time.Time, n *lab.Machine) error {
	if err := pauseFor(ctx, until.Sub(s.Now())); err != nil {
		return err
	}
	return s.Await(ctx, n.Name()+" to get no new connection", func(context.Context) error {
		if last, _ := s.sent(n, time.Time{}); s.Now().Sub(last) < 1500*time.Millisecond {
			return errors.New("it gets some still")
		}
		return nil
	})
}

// sent is when a first packet was sent to a node last, and how many were since a time.
func (s *healthSite) sent(n *lab.Machine, since time.Time) (last time.Time, flows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.all[n.Addr4()] {
		if at.After(since) {
			flows++
		}
		if at.After(last) {
			last = at
		}
	}
	return last, flows
}

// sentBy is when a load balancer sent a first packet to a node last.
func (s *healthSite) sentBy(e, n *lab.Machine) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[e.Name()][n.Addr4()]
}

// tunnelledSYN says whether a frame carries the first packet of a TCP connection in Geneve
// over IPv4 (RFC 8926), and to which machine.
func tunnelledSYN(frame []byte) (to netip.Addr, is bool) {
	const geneve = 6081
	ip, protocol, to := header4(frame, 14)
	if protocol != 17 || len(ip) < 16 || binary.BigEndian.Uint16(ip[2:]) != geneve {
		return to, false
	}
	inside := 16 + int(ip[8]&0x3f)*4
	if binary.BigEndian.Uint16(ip[10:]) != 0x0800 {
		return to, false
	}
	tcp, protocol, _ := header4(ip, inside)
	return to, protocol == 6 && len(tcp) > 13 && tcp[13]&0x12 == 0x02
}

// header4 is what follows an IPv4 header, its protocol and where it goes to.
func header4(b []byte, at int) (rest []byte, protocol byte, to netip.Addr) {
	if len(b) < at+20 || b[at]>>4 != 4 || len(b) < at+int(b[at]&15)*4 {
		return nil, 0, to
	}
	return b[at+int(b[at]&15)*4:], b[at+9], netip.AddrFrom4([4]byte(b[at+16 : at+20]))
}
