package l2

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// segment is a simulated segment: elections, a clock, and who hears whom. Frames take
// no time; who is frozen hears what it missed when it thaws, as sockets do.
type segment struct {
	t        *testing.T
	now      time.Time
	machines []*simulated
	deaf     map[[2]string]bool // from, to
	foreign  map[netip.Addr]hardware
	log      []string
	silent   bool
}

type simulated struct {
	*election
	name        string
	frozen      bool
	gone        bool
	beatAt      time.Time
	alive       time.Time
	missed      []func()
	refuses     string
	candidacies []Candidacy
}

var vip = netip.MustParseAddr("192.0.2.50")

func newSegment(t *testing.T, names ...string) *segment {
	s := &segment{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		deaf: map[[2]string]bool{}, foreign: map[netip.Addr]hardware{},
	}
	for _, n := range names {
		s.start(n)
	}
	return s
}

func macOf(name string) hardware { return hardware{2, 0, 0, 0, 0, name[0]} }

// start begins an election on a machine anew.
func (s *segment) start(name string) *simulated {
	m := &simulated{election: newElection(station{name, macOf(name)}), name: name, beatAt: s.now, alive: s.now}
	s.machines = slices.DeleteFunc(s.machines, func(o *simulated) bool { return o.name == name })
	s.machines = append(s.machines, m)
	slices.SortFunc(s.machines, func(a, b *simulated) int { return strings.Compare(a.name, b.name) })
	return m
}

func (s *segment) machine(name string) *simulated {
	for _, m := range s.machines {
		if m.name == name {
			return m
		}
	}
	s.t.Fatalf("no machine %s", name)
	return nil
}

// nominate makes machines candidates for the VIP, in this order.
func (s *segment) nominate(candidates ...string) {
	for _, m := range s.machines {
		m.candidacies = []Candidacy{{VIP: vip, Candidates: candidates, Ready: true}}
		m.set(s.now, m.candidacies)
		s.act(m)
	}
}

func (s *segment) ready(name string, ready bool) {
	m := s.machine(name)
	m.candidacies = slices.Clone(m.candidacies)
	m.candidacies[0].Ready = ready
	m.set(s.now, m.candidacies)
	s.act(m)
}

func (s *segment) note(format string, args ...any) {
	if !s.silent {
		s.log = append(s.log, fmt.Sprintf(format, args...))
	}
}

// act carries out what an election wants.
func (s *segment) act(m *simulated) {
	for fx := m.flush(); !fx.empty(); fx = m.flush() {
		for range fx.drop {
			s.note("%s drops", m.name)
		}
		for _, v := range fx.take {
			if m.refuses != "" {
				m.refuse(s.now, v, m.refuses)
				continue
			}
			s.note("%s takes", m.name)
		}
		if fx.beat {
			s.beat(m, m.entries(s.now))
		}
		for _, v := range fx.probe {
			if by, ok := s.foreign[v]; ok {
				m.answered(s.now, v, by)
			}
			s.others(m, func(o *simulated) {
				if mac, ok := o.deputy(s.now, v); ok && !o.frozen && !s.deaf[[2]string{o.name, m.name}] {
					m.answered(s.now, v, mac)
				}
			})
		}
	}
}

func (s *segment) others(from *simulated, f func(*simulated)) {
	for _, o := range s.machines {
		if o != from && !o.gone && !s.deaf[[2]string{from.name, o.name}] {
			f(o)
		}
	}
}

func (s *segment) beat(m *simulated, entries []entry) {
	m.beatAt, m.alive = s.now.Add(round), s.now
	s.others(m, func(o *simulated) {
		hear := func() {
			o.hear(s.now, m.self, entries)
			s.act(o)
		}
		if o.frozen {
			o.missed = append(o.missed, hear)
			return
		}
		hear()
	})
}

// run lets time pass.
func (s *segment) run(d time.Duration) {
	const tick = 10 * time.Millisecond
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(tick)
		for _, m := range s.machines {
			if m.frozen || m.gone {
				continue
			}
			if s.now.Sub(m.alive) >= silence {
				m.alive = s.now
				m.stalled(s.now)
			}
			m.decideAll(s.now)
			s.act(m)
			if !s.now.Before(m.beatAt) {
				s.beat(m, m.entries(s.now))
			}
			for _, hear := range m.missed {
				hear()
			}
			m.missed = nil
		}
	}
}

// owners are those that answer for the VIP now.
func (s *segment) owners() string {
	var names []string
	for _, m := range s.machines {
		if c := m.contests[vip]; c != nil && c.own && !m.gone {
			names = append(names, m.name)
		}
	}
	return strings.Join(names, " ")
}

func (s *segment) cut(a, b string, cut bool) {
	s.deaf[[2]string{a, b}], s.deaf[[2]string{b, a}] = cut, cut
}

// stop ends a machine's election as Announcer does.
func (s *segment) stop(name string, as role) {
	m := s.machine(name)
	entries := m.entries(s.now)
	for i := range entries {
		if entries[i].role != owner || as != paused {
			entries[i].role = idle
		} else {
			entries[i].role = paused
		}
	}
	m.gone = true
	s.beat(m, entries)
}

func TestElection(t *testing.T) {
	settled := func(s *segment) {
		s.nominate("a", "b", "c")
		s.run(2 * time.Second)
		if s.owners() != "a" {
			s.t.Fatalf("%q own it at first, want a", s.owners())
		}
		s.log = nil
	}
	for _, tt := range []struct {
		name   string
		does   func(*segment)
		within time.Duration
		owners string
		log    string
	}{
		{"nothing happens", func(*segment) {}, time.Minute, "a", ""},
		{"an owner that dies is followed by the next", func(s *segment) { s.machine("a").gone = true }, 1300 * time.Millisecond, "b", "b takes"},
		{"two die", func(s *segment) { s.machine("a").gone, s.machine("b").gone = true, true }, 1300 * time.Millisecond, "c", "c takes"},
		{"an owner that stops hands over at once", func(s *segment) { s.stop("a", idle) }, 10 * time.Millisecond, "b", "b takes"},
		{"an owner that is no longer ready hands over at once", func(s *segment) { s.ready("a", false) }, 10 * time.Millisecond, "b", "a drops, b takes"},
		{"nobody is moved back", func(s *segment) {
			s.ready("a", false)
			s.run(time.Second)
			s.ready("a", true)
		}, time.Minute, "b", "a drops, b takes"},
		{"nobody else is ready", func(s *segment) {
			s.ready("b", false)
			s.ready("c", false)
			s.ready("a", false)
		}, time.Minute, "", "a drops"},
		{"a hung owner yields when it wakes", func(s *segment) {
			s.machine("a").frozen = true
			s.run(5 * time.Second)
			s.machine("a").frozen = false
		}, 20 * time.Millisecond, "b", "b takes, a drops"},
		{"a hung owner without rivals goes on", func(s *segment) {
			for _, m := range s.machines {
				m.frozen = true
			}
			s.run(5 * time.Second)
			for _, m := range s.machines {
				m.frozen = false
			}
		}, time.Minute, "a", ""},
		{"a restart keeps it", func(s *segment) {
			s.stop("a", paused)
			s.run(4 * time.Second)
			m := s.start("a")
			m.candidacies = s.machine("b").candidacies
			m.set(s.now, m.candidacies)
		}, time.Minute, "a", "a takes"},
		{"a restart that fails does not", func(s *segment) { s.stop("a", paused) }, restart + 500*time.Millisecond, "b", "b takes"},
		{"a partition has two owners, and the later one stays", func(s *segment) {
			s.cut("a", "b", true)
			s.cut("a", "c", true)
			s.run(5 * time.Second)
			if s.owners() != "a b" {
				s.t.Errorf("%q own it in the partition", s.owners())
			}
			s.cut("a", "b", false)
			s.cut("a", "c", false)
		}, round, "b", "b takes, a drops"},
		{"an owner that is not heard but hears yields", func(s *segment) {
			s.deaf[[2]string{"a", "b"}], s.deaf[[2]string{"a", "c"}] = true, true
		}, 1300 * time.Millisecond, "b", "b takes, a drops"},
		{"an owner whose heartbeats alone are lost keeps it", func(s *segment) {
			s.machine("a").gone = true // its agent; and a's kernel answers, which it should not
			s.foreign[vip] = macOf("a")
		}, time.Minute, "", ""},
		{"a foreign host keeps its address", func(s *segment) {
			s.foreign[vip] = hardware{2, 9, 9, 9, 9, 9}
			s.machine("a").gone = true
		}, time.Minute, "", ""},
		{"a foreign host that goes away frees its address", func(s *segment) {
			s.foreign[vip] = hardware{2, 9, 9, 9, 9, 9}
			s.machine("a").gone = true
			s.run(time.Minute)
			delete(s.foreign, vip)
		}, recheck + time.Second, "b", "b takes"},
		{"a foreign host that claims an owned address is not followed", func(s *segment) {
			m := s.machine("a")
			m.answered(s.now, vip, hardware{2, 9, 9, 9, 9, 9})
			if why := m.contests[vip].trouble; !strings.Contains(why, "02:09:09:09:09:09") {
				s.t.Errorf("trouble is %q", why)
			}
		}, time.Minute, "a", ""},
		{"who cannot hold it lets the next try", func(s *segment) {
			s.machine("b").refuses = "eth0 has it"
			s.machine("a").gone = true
		}, 3 * time.Second, "c", "c takes"},
		{"who is no longer a candidate gives it up", func(s *segment) { s.nominate("b", "c") }, 10 * time.Millisecond, "b", "a drops, b takes"},
		{"a withdrawn candidacy is given up", func(s *segment) {
			for _, m := range s.machines {
				m.set(s.now, nil)
				s.act(m)
			}
		}, time.Minute, "", "a drops, b takes, b drops, c takes, c drops"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSegment(t, "a", "b", "c")
			settled(s)
			tt.does(s)
			s.run(tt.within)
			if got := s.owners(); got != tt.owners {
				t.Errorf("after %v %q own it, want %q", tt.within, got, tt.owners)
			}
			if got := strings.Join(s.log, ", "); got != tt.log {
				t.Errorf("log %q, want %q", got, tt.log)
			}
		})
	}
}

func TestFirstOwner(t *testing.T) {
	for _, tt := range []struct {
		present string
		owner   string
		within  time.Duration
	}{
		{"abc", "a", 1300 * time.Millisecond},
		{"bc", "b", 2300 * time.Millisecond},
		{"c", "c", 3300 * time.Millisecond},
	} {
		s := newSegment(t, strings.Split(tt.present, "")...)
		s.nominate("a", "b", "c")
		s.run(time.Second)
		if got := s.owners(); got != "" {
			t.Errorf("%s: %q own it before they listened", tt.present, got)
		}
		s.run(tt.within - time.Second)
		if got := s.owners(); got != tt.owner {
			t.Errorf("%s: %q own it, want %s", tt.present, got, tt.owner)
		}
	}
}

// Two owners with different candidate lists must not both believe that they win.
func TestDifferentListsAgree(t *testing.T) {
	s := newSegment(t, "a", "b")
	for m, list := range map[string][]string{"a": {"a", "b"}, "b": {"b", "a"}} {
		s.machine(m).set(s.now, []Candidacy{{VIP: vip, Candidates: list, Ready: true}})
	}
	s.run(5 * time.Second)
	if got := s.owners(); got != "a" {
		t.Errorf("%q own it", got)
	}
}

func TestDeputyAnswersForARestartingOwner(t *testing.T) {
	s := newSegment(t, "a", "b", "c")
	s.nominate("a", "b", "c")
	s.run(2 * time.Second)
	s.stop("a", paused)
	for name, want := range map[string]bool{"b": true, "c": false} {
		mac, ok := s.machine(name).deputy(s.now, vip)
		if ok != want || ok && mac != macOf("a") {
			t.Errorf("%s answers with %v, %v", name, mac, ok)
		}
	}
}

// Whatever happens, machines that hear each other agree on one owner soon after, and
// it stays.
func TestElectionConverges(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := newSegment(t, names...)
		s.silent = true
		s.nominate(names...)
		for range 30 {
			m := s.machine(names[r.IntN(len(names))])
			switch r.IntN(8) {
			case 0:
				s.cut(m.name, names[r.IntN(len(names))], true)
			case 1:
				s.deaf[[2]string{m.name, names[r.IntN(len(names))]}] = true
			case 2:
				clear(s.deaf)
			case 3:
				m.frozen = !m.frozen
			case 4:
				s.ready(m.name, r.IntN(2) == 0)
			case 5:
				if !m.gone && !m.frozen {
					s.stop(m.name, paused)
				}
			case 6:
				m.gone = true
			case 7:
				candidacies := m.candidacies
				m = s.start(m.name)
				m.candidacies = candidacies
				m.set(s.now, candidacies)
			}
			s.run(time.Duration(r.IntN(2000)) * time.Millisecond)
		}
		clear(s.deaf)
		for _, m := range s.machines {
			m.frozen = false
		}
		s.run(2 * round)
		if got := s.owners(); strings.Contains(got, " ") {
			t.Fatalf("seed %d: %q own it though all hear each other", seed, got)
		}
		alive := ""
		for _, m := range s.machines {
			if !m.gone && m.candidacies[0].Ready {
				alive = m.name
			}
		}
		s.run(restart + maxNewcomer + 5*time.Second)
		first := s.owners()
		if (first == "") != (alive == "") {
			t.Fatalf("seed %d: %q own it", seed, first)
		}
		s.run(time.Minute)
		if got := s.owners(); got != first {
			t.Fatalf("seed %d: it moved from %q to %q without a cause", seed, first, got)
		}
	}
}
