package l2

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

// A VIP follows whatever happens to its owner, and its owners are never two that hear
// each other.
func TestTakeover(t *testing.T) {
	r := newRig(t, 2, "a", "b", "c")
	r.start("a", "b", "c")
	r.settled("a", "a", "b", "c")
	for _, tt := range []struct {
		name  string
		cause func(owner string)
		// heal undoes the cause; the former owner must not take anything back.
		heal func(owner string)
	}{
		{
			"not ready",
			func(o string) { must(t, r.members[o].Signal(unix.SIGUSR1)) },
			func(o string) { must(t, r.members[o].Signal(unix.SIGUSR2)) },
		},
		{
			"stopped",
			func(o string) { must(t, r.members[o].Signal(unix.SIGTERM)) },
			func(o string) { <-r.members[o].Done(); r.start(o) },
		},
		{
			"killed",
			func(o string) { r.members[o].Kill9() },
			func(o string) { r.start(o) },
		},
		{
			"hung",
			func(o string) { must(t, r.members[o].Signal(unix.SIGSTOP)) },
			func(o string) { must(t, r.members[o].Signal(unix.SIGCONT)) },
		},
		{
			"link down",
			func(o string) { must(t, r.lab.Machine(o).SetLink(t.Context(), false)) },
			func(o string) { must(t, r.lab.Machine(o).SetLink(t.Context(), true)) },
		},
		{
			"blackhole",
			func(o string) { must(t, r.lab.Machine(o).SetBlackhole(true)) },
			func(o string) { must(t, r.lab.Machine(o).SetBlackhole(false)) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := *r
			r.t = t
			for _, vip := range r.vips {
				owner := r.ask(vip)
				r.eventually("somebody owns it", func() bool { owner = r.ask(vip); return owner != "" })
				others := slices.DeleteFunc(slices.Clone(r.names), func(n string) bool { return n == owner })
				took := r.moved(vip, owner, func() { tt.cause(owner) })
				next := ""
				r.eventually("one of the others owns it", func() bool {
					next = r.owners(vip, others...)
					return next != "" && !strings.Contains(next, " ")
				})
				tt.heal(owner)
				r.standsBy(owner, vip)
				r.settled(next, r.names...)
				t.Logf("%s moved from %s to %s in %v", vip, owner, next, took.Round(time.Millisecond))
			}
		})
	}
}

// Machines that do not hear each other both own a VIP; when they do again, one yields
// and the client follows the other.
func TestPartitionHeals(t *testing.T) {
	r := newRig(t, 2, "a", "b")
	r.start("a", "b")
	r.settled("a", "a", "b")
	r.isolate(true, "a", "b")
	for _, v := range r.vips {
		r.eventually("both own it", func() bool { return r.owners(v, "a", "b") == "a b" })
	}
	r.isolate(false, "a", "b")
	r.settled("b", "a", "b")
}

// With its agent dead nobody answers for a VIP that is still on the machine, so that
// who takes it has no rival.
func TestKernelIsSilent(t *testing.T) {
	r := newRig(t, 2, "a")
	r.start("a")
	r.settled("a", "a")
	r.members["a"].Kill9()
	<-r.members["a"].Done()
	listen := r.sniff()
	r.forget()
	for _, v := range r.vips {
		if who := r.ask(v); who != "" {
			t.Errorf("%s is still answered by %s", v, who)
		}
	}
	// That the addresses are there shows who knows the way without asking, for which
	// the sniffer sees no answer.
	h, err := r.lab.Machine("client").Netlink()
	must(t, err)
	defer h.Close()
	mac := machineMAC(t, r, "a")
	setNeighbours(t, h, r.vips, mac)
	for _, v := range r.vips {
		r.eventually("the machine takes connections", func() bool { return r.ask(v) == "a" })
	}
	asked := map[netip.Addr]bool{}
	for _, f := range listen() {
		switch f.Kind {
		case "question":
			asked[f.VIP] = true
		case "answer", "announcement", "asker":
			if slices.Contains(r.vips, f.VIP) {
				t.Errorf("%s of %s from %s", f.Kind, f.VIP, f.Source)
			}
		}
	}
	for _, v := range r.vips {
		if !asked[v] {
			t.Errorf("nobody asked for %s, so the silence shows nothing", v)
		}
	}
}

// An agent that restarts keeps its VIPs; meanwhile the next machine answers for it.
func TestRestartKeepsVIPs(t *testing.T) {
	r := newRig(t, 2, "a", "b")
	r.start("a", "b")
	r.settled("a", "a", "b")
	before := len(r.history("b"))
	must(t, r.members["a"].Signal(unix.SIGINT))
	<-r.members["a"].Done()
	r.forget()
	for _, v := range r.vips {
		if who := r.ask(v); who != "a" {
			t.Errorf("while the agent restarts, %q answers at %s", who, v)
		}
	}
	r.start("a")
	r.settled("a", "a", "b")
	for _, s := range r.history("b")[before:] {
		for _, v := range s.VIPs {
			if v.State == model.VIPAnnounced {
				t.Errorf("b owned %s meanwhile", v.Address)
			}
		}
	}
}

// A host that has the address keeps it, and the status names it. When it goes, the
// VIP is taken.
func TestForeignHost(t *testing.T) {
	r := newRig(t, 2, "a", "printer")
	h, err := r.lab.Machine("printer").Netlink()
	must(t, err)
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	must(t, err)
	for _, v := range r.vips {
		must(t, h.AddrAdd(eth0, testAddr(v)))
	}
	r.start("a")
	mac := machineMAC(t, r, "printer").String()
	for _, v := range r.vips {
		r.eventually("the status names the other host", func() bool {
			s := r.status("a", v)
			return s.State == model.VIPWithheld && strings.Contains(s.Message, mac)
		})
		if who := r.ask(v); who != "printer" {
			t.Errorf("%q answers at %s", who, v)
		}
		must(t, h.AddrDel(eth0, testAddr(v)))
	}
	r.settled("a", "a")
}

// What goes over the wire: heartbeats of each machine whose number does not grow with
// the VIPs, and at a takeover a few announcements, all of the new owner.
func TestFrameCounts(t *testing.T) {
	r := newRig(t, 20, "a", "b")
	r.start("a", "b")
	r.settled("a", "a", "b")
	listen := r.sniff()
	start := time.Now()
	r.members["a"].Kill9()
	r.settled("b", "b")
	b := machineMAC(t, r, "b").String()
	frames := map[string]int{}
	r.eventually("time passes until all announcements are out", func() bool { return time.Since(start) > 4*time.Second })
	for _, f := range listen() {
		ours := slices.Contains(r.vips, f.VIP)
		switch {
		case f.Kind == "heartbeat":
			frames["heartbeat "+f.Source]++
		case ours && (f.Kind == "announcement" || f.Kind == "answer"):
			if f.MAC != b {
				t.Errorf("%s of %s names %s", f.Kind, f.VIP, f.MAC)
			}
			frames[f.Kind+" "+f.VIP.String()]++
		case ours && f.Kind == "asker":
			t.Errorf("%s asks in the name of %s", f.Source, f.VIP)
		}
	}
	for _, v := range r.vips {
		want := len(announcements())
		if v.Is4() {
			want *= 2 // a request and a reply each
		}
		if got := frames["announcement "+v.String()]; got != want {
			t.Errorf("%d announcements of %s, want %d", got, v, want)
		}
	}
	t.Logf("%d heartbeats of b in %v", frames["heartbeat "+b], time.Since(start).Round(time.Millisecond))
}

// BenchmarkMove measures how long it takes until a client reaches a VIP at its next
// owner: the median and the largest of ten moves.
func BenchmarkMove(b *testing.B) {
	for _, count := range []int{2, 1000} {
		for _, c := range []struct {
			name        string
			cause, heal func(r *rig, o string)
		}{
			{
				"handover",
				func(r *rig, o string) { must(b, r.members[o].Signal(unix.SIGTERM)) },
				func(r *rig, o string) { <-r.members[o].Done(); r.start(o) },
			},
			{
				"killed",
				func(r *rig, o string) { r.members[o].Kill9() },
				func(r *rig, o string) { r.start(o) },
			},
			{
				"hung",
				func(r *rig, o string) { must(b, r.members[o].Signal(unix.SIGSTOP)) },
				func(r *rig, o string) { must(b, r.members[o].Signal(unix.SIGCONT)) },
			},
			{
				"link-down",
				func(r *rig, o string) { must(b, r.lab.Machine(o).SetLink(b.Context(), false)) },
				func(r *rig, o string) { must(b, r.lab.Machine(o).SetLink(b.Context(), true)) },
			},
		} {
			b.Run(fmt.Sprintf("%s/vips=%d", c.name, count), func(b *testing.B) {
				r := newRig(b, count, "a", "b")
				r.start("a", "b")
				r.settledAll("a")
				for _, vip := range []netip.Addr{r.vips[count-2], r.vips[count-1]} {
					family := "ipv4"
					if vip.Is6() {
						family = "ipv6"
					}
					var took []time.Duration
					for range 10 {
						owner := ""
						r.eventually("somebody answers", func() bool { owner = r.ask(vip); return owner != "" })
						took = append(took, r.moved(vip, owner, func() { c.cause(r, owner) }))
						c.heal(r, owner)
						r.standsBy(owner, vip)
					}
					slices.Sort(took)
					b.ReportMetric(took[len(took)/2].Seconds(), family+"-median-s")
					b.ReportMetric(took[len(took)-1].Seconds(), family+"-max-s")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// standsBy waits until a machine could take a VIP.
func (r *rig) standsBy(name string, vip netip.Addr) {
	r.t.Helper()
	r.eventually(name+" stands by", func() bool {
		s := r.status(name, vip)
		return s.State == model.VIPStandby && s.Message == ""
	})
}

// settledAll is settled without asking each of very many VIPs.
func (r *rig) settledAll(name string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%s owns everything", name), func() bool {
		all := r.history(name)
		if len(all) == 0 || len(all[len(all)-1].VIPs) != len(r.vips) {
			return false
		}
		for _, v := range all[len(all)-1].VIPs {
			if v.State != model.VIPAnnounced {
				return false
			}
		}
		return true
	})
}
