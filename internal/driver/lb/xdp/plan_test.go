package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// quiet is an environment where every way is open.
func quiet() environment {
	return environment{
		machine: "m1", nodes: nodes("m1", "m2", "m3"),
		closed: func(string, netip.Addr) bool { return false },
		decaps: func(n *model.Node) bool { return n.Decaps },
		path:   func(netip.Addr) bpf.Path { return bpf.Path{} },
	}
}

func TestModes(t *testing.T) {
	at := netip.MustParseAddrPort
	on := func(address, machine string) model.FrontendBackend {
		return model.FrontendBackend{Address: at(address), Machine: machine, Weight: 1, HopWeight: 1}
	}
	vip := frontendKey(t, "tcp://203.0.113.1:80")
	proxy := func(machine string) model.FrontendBackend { return on("203.0.113.1:80", machine) }
	for _, c := range []struct {
		name      string
		frontend  model.Frontend
		backends  []model.FrontendBackend
		change    func(*environment)
		mode      model.ForwardMode
		available uint32
		says      string // in its message; "" for none
		reached   string // modes of the backends
	}{
		{"all on machines", model.Frontend{}, []model.FrontendBackend{on("10.0.0.1:80", "m2"), on("10.0.0.2:80", "m1")}, nil, model.ModeDSRGeneve, 2, "", "geneve geneve"},
		{"one is elsewhere", model.Frontend{}, []model.FrontendBackend{on("10.0.0.1:80", "m2"), on("10.0.0.2:80", "")}, nil, model.ModeNAT, 2, "10.0.0.2:80 is on no machine", "nat nat"},
		{"one here, by NAT", model.Frontend{Mode: model.ModeNAT}, []model.FrontendBackend{on("10.0.0.1:80", "m1"), on("10.0.0.2:80", "m2")}, nil, model.ModeNAT, 2, "", "geneve nat"},
		{
			"a machine takes nothing out",
			model.Frontend{},
			[]model.FrontendBackend{on("10.0.0.1:80", "m2")},
			func(s *environment) { s.decaps = func(*model.Node) bool { return false } }, model.ModeNAT, 1, "m2 does not decapsulate", "nat",
		},
		{
			"the way back is closed",
			model.Frontend{},
			[]model.FrontendBackend{on("10.0.0.1:80", "m2")},
			func(s *environment) { s.closed = func(m string, _ netip.Addr) bool { return m == "m2" } }, model.ModeNAT, 1, "do not arrive", "nat",
		},
		{
			"the way back is closed, and tunnels are asked for",
			model.Frontend{Mode: model.ModeDSRGeneve},
			[]model.FrontendBackend{on("10.0.0.1:80", "m2"), on("10.0.0.2:80", "m3")},
			func(s *environment) { s.closed = func(m string, _ netip.Addr) bool { return m == "m2" } }, model.ModeDSRGeneve, 1, "do not arrive", "geneve geneve",
		},
		{"of another family", model.Frontend{Mode: model.ModeNAT}, []model.FrontendBackend{on("[2001:db8::1]:80", "")}, nil, model.ModeNAT, 0, "different families", "none"},
		{"IP in IP to another port", model.Frontend{Mode: model.ModeDSRIPIP}, []model.FrontendBackend{on("10.0.0.1:81", ""), on("10.0.0.2:80", "")}, nil, model.ModeDSRIPIP, 1, "does not have the frontend's port", "ipip ipip"},
		{"IP in IP to itself", model.Frontend{Mode: model.ModeDSRIPIP}, []model.FrontendBackend{on("10.0.0.1:80", "m1")}, nil, model.ModeDSRIPIP, 1, "", "local"},
		{
			"L2 behind a router",
			model.Frontend{Mode: model.ModeDSRL2},
			[]model.FrontendBackend{on("10.0.0.1:80", "")},
			func(s *environment) { s.path = func(netip.Addr) bpf.Path { return bpf.Path{Gateway: true} } }, model.ModeDSRL2, 0, "behind a router", "l2",
		},
		{"local", model.Frontend{Mode: model.ModeLocal}, []model.FrontendBackend{on("10.0.0.1:80", "m1"), on("10.0.0.2:80", "m2")}, nil, model.ModeLocal, 1, "is not on this machine", "local local"},
		{"proxies of two machines", model.Frontend{Listener: "l"}, []model.FrontendBackend{proxy("m1"), proxy("m2")}, nil, model.ModeDSRGeneve, 2, "", "geneve geneve"},
		{
			"proxies, of which one is silent",
			model.Frontend{Listener: "l"},
			[]model.FrontendBackend{proxy("m1"), proxy("m2"), proxy("m3")},
			func(s *environment) { s.silent = map[string]bool{"m2": true} }, model.ModeDSRGeneve, 2, "m2 does not answer", "geneve geneve geneve",
		},
		{
			"backends, of which one is silent",
			model.Frontend{},
			[]model.FrontendBackend{on("10.0.0.1:80", "m2"), on("10.0.0.2:80", "m3")},
			func(s *environment) { s.silent = map[string]bool{"m2": true} }, model.ModeDSRGeneve, 1, "m2 does not answer", "geneve geneve",
		},
		{
			"backends that are silent, all of them",
			model.Frontend{},
			[]model.FrontendBackend{on("10.0.0.1:80", "m2"), on("10.0.0.2:80", "m2")},
			func(s *environment) { s.silent = map[string]bool{"m2": true} }, model.ModeDSRGeneve, 2, "", "geneve geneve",
		},
		{
			"backends that are silent and not reached by a tunnel",
			model.Frontend{Mode: model.ModeNAT},
			[]model.FrontendBackend{on("10.0.0.1:80", "m2"), on("10.0.0.2:80", "m3")},
			func(s *environment) { s.silent = map[string]bool{"m2": true} }, model.ModeNAT, 2, "", "nat nat",
		},
		{"this proxy alone", model.Frontend{Listener: "l"}, []model.FrontendBackend{proxy("m1")}, nil, model.ModeLocal, 1, "", "local"},
		{"proxies by NAT", model.Frontend{Listener: "l", Mode: model.ModeNAT}, []model.FrontendBackend{proxy("m1"), proxy("m2")}, nil, model.ModeDSRGeneve, 2, "not NAT", "geneve geneve"},
		{"local only", model.Frontend{LocalOnly: true}, []model.FrontendBackend{on("10.0.0.1:80", "m1"), on("10.0.0.2:80", "m2")}, nil, model.ModeDSRGeneve, 1, "", "geneve geneve"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := quiet()
			if c.change != nil {
				c.change(&s)
			}
			f := c.frontend
			f.FrontendKey, f.Machines = vip, []string{"m1"}
			p := plan(&model.Balanced{Frontend: &f, Backends: c.backends}, s)
			by := map[uint64]string{}
			for _, m := range p.members {
				by[m.id] = []string{"none", "local", "nat", "geneve", "ipip", "l2"}[m.mode]
			}
			var reached []string
			for _, b := range c.backends {
				for _, m := range p.members {
					if m.backend == b {
						reached = append(reached, by[m.id])
					}
				}
			}
			if p.mode != c.mode || p.available() != c.available || strings.Join(reached, " ") != c.reached {
				t.Errorf("mode %s, %d available, by %v; want %s, %d, %s", p.mode, p.available(), reached, c.mode, c.available, c.reached)
			}
			if c.says == "" && p.message != "" || !strings.Contains(p.message, c.says) {
				t.Errorf("it says %q, want %q", p.message, c.says)
			}
		})
	}
}

func TestWhatThisDataPlaneDoesNot(t *testing.T) {
	d := &DataPlane{}
	for says, f := range map[string]model.Frontend{
		"IPVS does":               {MaxFlows: 1},
		"not by the scheduler":    {Scheduler: "wlc"},
		"within the first 16":     {QUIC: &model.QUICServer{Length: 4, Offset: 16}, FrontendKey: model.FrontendKey{Transport: model.UDP}},
		"server IDs in QUIC's co": {QUIC: &model.QUICServer{Length: 9}, FrontendKey: model.FrontendKey{Transport: model.UDP}},
	} {
		err := d.Supports(&model.Balanced{Frontend: &f})
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	if err := d.Supports(&model.Balanced{Frontend: &model.Frontend{Scheduler: "mh", QUIC: &model.QUICServer{Offset: 1, Length: 8}, FrontendKey: model.FrontendKey{Transport: model.UDP}}}); err != nil {
		t.Error(err)
	}
}

// A flow may be at a proxy that stands in no row, however many proxies there are.
func TestProxiesStandInACircle(t *testing.T) {
	for n, want := range map[int]int{3: 0, 4: 4, 16: 16, 17: 17, 100: 100} {
		f := &model.Balanced{Frontend: &model.Frontend{FrontendKey: frontendKey(t, "tcp://203.0.113.1:80"), Listener: "edge"}}
		for i := range n {
			f.Backends = append(f.Backends, model.FrontendBackend{
				Address: netip.MustParseAddrPort("203.0.113.1:80"), Machine: fmt.Sprintf("m%03d", i), State: model.BackendReady, Weight: 1, HopWeight: 1,
			})
		}
		p := plan(f, quiet())
		if len(p.circle) != want || !slices.IsSorted(p.circle) {
			t.Errorf("of %d proxies %d stand in the circle, want %d", n, len(p.circle), want)
		}
	}
}

func TestServerIDs(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:443":       "\xc0\x00\x02\x07\x01\xbb\x00\x00",
		"[2001:db8::a:b]:443": "\x00\x0a\x00\x0b\x01\xbb\x00\x00",
	} {
		id := serverID(model.FrontendBackend{Address: netip.MustParseAddrPort(address)}, 6)
		if string(id[:]) != want {
			t.Errorf("%s is %x", address, id)
		}
	}
}

// What a kernel lacks is said with the version that has it.
func TestKernelThatLacksSomething(t *testing.T) {
	fine := func() error { return nil }
	lacks := func() error { return ebpf.ErrNotSupported }
	err := probeKernel([]bpf.Feature{{Name: "this", Since: "4.11", Probe: fine}, {Name: "that", Since: "5.8", Probe: lacks}, {Name: "tcx", Since: "6.6", Probe: lacks}})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "lacks that (Linux 5.8), tcx (Linux 6.6)") || !strings.Contains(err.Error(), "nftables") {
		t.Errorf("got %v", err)
	}
	if err := probeKernel([]bpf.Feature{{Name: "this", Since: "4.11", Probe: func() error { return unix.EPERM }}}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "CAP_BPF") {
		t.Errorf("got %v", err)
	}
	d := &DataPlane{why: err}
	f := &model.Balanced{Frontend: &model.Frontend{FrontendKey: model.FrontendKey{Port: 1}}}
	if got := d.Supports(f); !errors.Is(got, err) {
		t.Errorf("it supports a frontend: %v", got)
	}
	if got := d.Set(model.Balancing{Frontends: map[model.FrontendKey]*model.Balanced{{}: f}}); !errors.Is(got, err) {
		t.Errorf("it took a frontend: %v", got)
	}
	if _, message, ok := d.Tunnel(); ok || !strings.Contains(message, "tcx") {
		t.Errorf("it takes packets out of tunnels: %q", message)
	}
}
