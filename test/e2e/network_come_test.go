package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/lab/rig"
)

// slowTime is how long an agent does nothing, less than the machines' time-to-live.
const slowTime = 3 * time.Second

// TestComingToAPoolBreaksNothing puts an edge into the pool while an agent is slow: that of
// the edge which has all flows, whose kernel does not know the new one meanwhile, or that of the
// new one, whose kernel takes no flow yet.
func TestComingToAPoolBreaksNothing(t *testing.T) {
	s := routed(t)
	// An agent that does nothing says nothing to the router either.
	s.kubectl(t, "delete", "bgppeer", "upstream")
	s.apply(t, strings.Replace(rig.PeerManifest("unwatched", upstream.Machine()), "holdTime: 3s", "holdTime: 30s", 1))
	t.Cleanup(func() { s.kubectl(t, "delete", "bgppeer", "unwatched") })
	member := s.membership(t)
	for _, slow := range []string{"edge-2", "edge-1"} {
		t.Run(slow+" is slow", func(t *testing.T) {
			s.awaitWays(t)
			s.awaitPassing(t)
			member(false)
			s.await(t, "edge-1 to have left", func(ctx context.Context) error {
				status, err := s.plane.Status(ctx)
				if err != nil {
					return err
				}
				for _, f := range status.Frontends {
					for _, x := range f.At {
						if x.Machine == "edge-1" {
							return fmt.Errorf("it has %s", f.FrontendKey)
						}
					}
				}
				if s.holds(t, s.agents["edge-1"].Machine) {
					return errors.New("it holds a VIP")
				}
				return nil
			})
			log := s.watchRoutes(t)
			kept, fresh := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip4, false)
			kept6, fresh6 := s.startVIPLoad(t, vip6, true), s.startVIPLoad(t, vip6, false)
			s.awaitReport(t, slow)
			began, process := s.Now(), s.agents[slow].Process
			if err := process.Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			resume := func() {
				if err := process.Signal(unix.SIGCONT); err != nil {
					t.Error(err)
				}
			}
			defer resume()
			member(true)
			time.Sleep(max(0, slowTime-s.Now().Sub(began))) // kubectl has taken some of it
			resumed := s.Now()
			resume()
			for _, e := range log.of(vip4) {
				if e.When.Before(resumed) && len(e.NextHops) > 1 {
					t.Errorf("it was announced %s after the agent had become slow, and %s before that did anything", e.When.Sub(began), resumed.Sub(e.When))
				}
			}
			t.Logf("announced %s after that was over", log.awaitWay(t, vip4, began, "edge-1", "edge-2").Sub(resumed))
			s.awaitPassing(t)
			kept.more(t, 100)
			kept6.more(t, 100)
			for _, l := range []*vipLoad{kept, fresh, kept6, fresh6} {
				l.none(t)
				t.Logf("%s: %s at most", l.name, l.longest())
			}
		})
	}
}

// awaitReport waits for the next report of a machine.
func (s *site) awaitReport(t *testing.T, machine string) {
	t.Helper()
	var first time.Time
	s.await(t, "a report of "+machine, func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, m := range status.Machines {
			switch {
			case m.Name != machine:
			case first.IsZero():
				first = m.LastReport
			case m.LastReport.After(first):
				return nil
			}
		}
		return errors.New("there was none")
	})
}

// longest is how long an answer took at most.
func (l *vipLoad) longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for _, r := range l.results {
		all = append(all, r.Latency)
	}
	return slices.Max(all)
}
