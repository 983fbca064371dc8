package xdp

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

var update = flag.Bool("update", false, "write what the tests see as what they want")

// TestReconcile drives maps through a frontend's life, and compares them as text with
// testdata/reconcile.txt after each step. The agent is replaced by a new one now and then,
// which must change nothing.
func TestReconcile(t *testing.T) {
	inMachine(t)
	dir := filepath.Join(t.TempDir(), "pins")
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	d := newPlane(t, dir)
	var got strings.Builder
	b := model.Balancing{Machine: "m1", Nodes: nodes("m1", "m2", "m3", "m4"), Frontends: map[model.FrontendKey]*model.Balanced{}, Unready: map[model.FrontendKey]bool{}}
	step := func(name string, change func()) {
		t.Helper()
		change()
		must(t, d.Set(b))
		before := dump(d)
		got.WriteString("== " + name + "\n" + before)
		for _, o := range d.Observed() {
			got.WriteString(strings.TrimSpace(fmt.Sprintf("observed %s %s mode %s available %d: %s", o.FrontendKey, o.State, o.Mode, o.Available, o.Message)) + "\n")
		}
		must(t, d.Set(b))
		if again := dump(d); again != before {
			t.Errorf("%s: set again changes\n%sto\n%s", name, before, again)
		}
		must(t, d.Close(true))
		d = newPlane(t, dir)
		if adopted := dump(d); adopted != before {
			t.Errorf("%s: a new agent makes of\n%s\n%s", name, before, adopted)
		}
		must(t, d.Set(b))
		if adopted := dump(d); adopted != before {
			t.Errorf("%s: the first Set of a new agent makes of\n%s\n%s", name, before, adopted)
		}
	}
	at := netip.MustParseAddrPort
	web, dns, l7, l7b := frontendKey(t, "tcp://203.0.113.1:80"), frontendKey(t, "udp://203.0.113.1:53"), frontendKey(t, "tcp://203.0.113.9:443"), frontendKey(t, "tcp://203.0.113.10:443")
	backend := func(address, machine string) model.FrontendBackend {
		return model.FrontendBackend{Address: at(address), Machine: machine, Weight: 100, HopWeight: 100}
	}
	put := func(f model.Frontend, backends ...model.FrontendBackend) {
		b.Frontends[f.FrontendKey] = &model.Balanced{Frontend: &f, Backends: backends}
	}
	here := []string{"m1", "m2"}
	step("a frontend with backends on machines", func() {
		put(model.Frontend{FrontendKey: web, Machines: here, Drain: time.Hour}, backend("10.0.0.1:8080", "m3"), backend("10.0.0.2:8080", "m4"))
	})
	step("one backend drains, and another frontend comes", func() {
		one := backend("10.0.0.1:8080", "m3")
		one.Weight, one.State = 0, model.BackendDraining
		put(model.Frontend{FrontendKey: web, Machines: here, Drain: time.Hour}, one, backend("10.0.0.2:8080", "m4"))
		put(model.Frontend{
			FrontendKey: dns, Machines: here, Hash: model.HashSource, Affinity: time.Minute, NewFlows: 7, QUIC: &model.QUICServer{Offset: 1, Length: 6},
			Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/32")},
		}, backend("192.0.2.2:53", ""), backend("10.0.0.9:53", "m1"))
	})
	step("the drained one goes, a source goes, and the proxies of two VIPs come", func() {
		put(model.Frontend{FrontendKey: web, Machines: here, Drain: time.Hour}, backend("10.0.0.2:8080", "m4"))
		put(model.Frontend{FrontendKey: dns, Machines: here, Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}, backend("192.0.2.2:53", ""))
		for _, k := range []model.FrontendKey{l7, l7b} {
			put(model.Frontend{FrontendKey: k, Machines: here, Listener: "l", Drain: time.Hour},
				model.FrontendBackend{Address: netip.AddrPortFrom(k.VIP, k.Port), Machine: "m1", Weight: 100, HopWeight: 100},
				model.FrontendBackend{Address: netip.AddrPortFrom(k.VIP, k.Port), Machine: "m2", Weight: 100, HopWeight: 100})
		}
	})
	step("a proxy drains for both VIPs, and is not ready here for one", func() {
		for _, k := range []model.FrontendKey{l7, l7b} {
			put(model.Frontend{FrontendKey: k, Machines: here, Listener: "l", Drain: time.Hour},
				model.FrontendBackend{Address: netip.AddrPortFrom(k.VIP, k.Port), Machine: "m1", HopWeight: 100, State: model.BackendDraining},
				model.FrontendBackend{Address: netip.AddrPortFrom(k.VIP, k.Port), Machine: "m2", Weight: 100, HopWeight: 100})
		}
		b.Unready[l7] = true
	})
	step("the modes of other hosts, and one backend here whose VIP is elsewhere", func() {
		clear(b.Frontends)
		clear(b.Unready)
		put(model.Frontend{FrontendKey: web, Machines: here, Mode: model.ModeDSRIPIP}, backend("192.0.2.3:80", ""), backend("192.0.2.4:81", ""))
		put(model.Frontend{FrontendKey: dns, Machines: here, Mode: model.ModeDSRL2}, backend("192.0.2.4:53", ""))
		put(model.Frontend{FrontendKey: l7, Machines: []string{"m2"}}, backend("10.0.0.9:443", "m1"), backend("10.0.0.1:443", "m3"))
	})
	step("VIPs are guarded, but for the machine's own address", func() {
		put(model.Frontend{FrontendKey: frontendKey(t, "tcp://192.0.2.1:80"), Machines: here, Mode: model.ModeDSRIPIP}, backend("192.0.2.3:80", ""))
		b.Guarded = map[netip.Addr][]model.FrontendKey{web.VIP: {frontendKey(t, "tcp://203.0.113.1:443"), frontendKey(t, "udp://203.0.113.1:443")}, l7.VIP: {}, at("192.0.2.1:0").Addr(): {}}
	})
	step("something else serves no more, and something new", func() {
		b.Guarded = map[netip.Addr][]model.FrontendKey{web.VIP: {frontendKey(t, "tcp://203.0.113.1:443"), dns}}
		delete(b.Frontends, dns)
	})
	step("one VIP is no longer guarded", func() { b.Guarded = nil })
	step("nothing is left of a VIP that is guarded", func() {
		b.Guarded = map[netip.Addr][]model.FrontendKey{web.VIP: {}}
		clear(b.Frontends)
	})
	step("nothing is left", func() { b.Guarded = nil })

	golden := filepath.Join("testdata", "reconcile.txt")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if got.String() != string(want) {
		t.Errorf("the maps are not as in %s (-update):\n%s", golden, got.String())
	}
	must(t, d.Close(false))
	left, err := os.ReadDir(bpf.LayoutDir(dir))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
