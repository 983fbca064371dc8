package ipvs

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

func frontend(change func(*model.Frontend), backends ...model.FrontendBackend) *model.Balanced {
	f := &model.Frontend{
		FrontendKey: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.10"), Transport: model.TCP, Port: 80},
		Owner:       model.Object{Kind: "Service", Namespace: "default", Name: "web"}, Machines: []string{"m"},
	}
	change(f)
	return &model.Balanced{Frontend: f, Backends: backends}
}

func at(address string, weight uint32) model.FrontendBackend {
	return model.FrontendBackend{Address: netip.MustParseAddrPort(address), Weight: weight}
}

// TestMissing: without IPVS each frontend says which module to load, and nothing fails.
func TestMissing(t *testing.T) {
	if available() == nil {
		return // this kernel has it
	}
	p, err := New(Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f := frontend(func(*model.Frontend) {}, at("10.0.0.1:80", 1))
	if err := p.Supports(f); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "modprobe ip_vs") {
		t.Errorf("got %v", err)
	}
	b := model.Balancing{Machine: "m", Frontends: map[model.FrontendKey]*model.Balanced{f.Frontend.FrontendKey: f}}
	for range 2 {
		if err := p.Set(b); err != nil {
			t.Fatal(err)
		}
	}
	if o := p.Observed(); len(o) != 1 || o[0].State != model.FrontendRefused || !strings.Contains(o[0].Message, "modprobe ip_vs") {
		t.Errorf("observed %#v", o)
	}
	figures, _, err := p.Figures()
	if err != nil || len(figures) != 0 {
		t.Errorf("figures %v: %v", figures, err)
	}
	if flows, _, err := p.Flows(model.FlowQuery{}); err != nil || len(flows) != 0 {
		t.Errorf("flows %v: %v", flows, err)
	}
	if err := errors.Join(p.Repair(), p.Close(false)); err != nil {
		t.Error(err)
	}
}

func TestCompile(t *testing.T) {
	b := model.Balancing{Machine: "m"}
	local := at("10.0.0.3:80", 7)
	local.Machine = "m"
	draining := at("10.0.0.4:80", 9)
	draining.State = model.BackendDraining
	for name, c := range map[string]struct {
		f         *model.Balanced
		weights   map[string]uint32
		flags     uint32
		available uint32
		message   string
	}{
		"weights": {
			frontend(func(*model.Frontend) {}, at("10.0.0.1:80", 3), at("10.0.0.2:8080", 5), draining),
			map[string]uint32{"10.0.0.1:80": 3, "10.0.0.2:8080": 5, "10.0.0.4:80": 0},
			flagFallback | flagPort, 2, "",
		},
		"heavy": {
			frontend(func(*model.Frontend) {}, at("10.0.0.1:80", 1<<31), at("10.0.0.2:80", 1<<30), at("10.0.0.5:80", 1)),
			map[string]uint32{"10.0.0.1:80": maxWeight, "10.0.0.2:80": maxWeight / 2, "10.0.0.5:80": 1},
			flagFallback | flagPort, 3, "",
		},
		"local": {
			frontend(func(f *model.Frontend) { f.LocalOnly, f.Hash, f.Affinity = true, model.HashSource, time.Millisecond }, at("10.0.0.1:80", 3), local),
			map[string]uint32{"10.0.0.3:80": 7},
			flagFallback | flagPersistent, 1, "",
		},
		"port-in-a-tunnel": {
			frontend(func(f *model.Frontend) { f.Mode, f.Scheduler = model.ModeDSRIPIP, "wlc" }, at("10.0.0.1:80", 3), at("10.0.0.1:81", 3)),
			map[string]uint32{"10.0.0.1:80": 3},
			0, 1, "1 backends are left out: mode DSRIPIP keeps the port, and theirs is not 80",
		},
		"other-family": {
			frontend(func(*model.Frontend) {}, at("[2001:db8::1]:80", 3)),
			map[string]uint32{},
			flagFallback | flagPort, 0, "1 backends are left out: their addresses are of another family than the VIP",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, available, message := compile(b, c.f)
			if s.flags != c.flags || available != c.available || message != c.message || len(s.backends) != len(c.weights) {
				t.Errorf("got %+v, %d available, %q", s, available, message)
			}
			for a, w := range c.weights {
				if got := s.backends[netip.MustParseAddrPort(a)].weight; got != w {
					t.Errorf("%s has weight %d, want %d", a, got, w)
				}
			}
		})
	}
}

func TestShare(t *testing.T) {
	owners := map[model.FrontendKey]model.Object{}
	build := func(vip string, port uint16, name string, affinity time.Duration, backends ...string) service {
		f := frontend(func(f *model.Frontend) {
			f.VIP, f.Port, f.Owner.Name, f.Affinity = netip.MustParseAddr(vip), port, name, affinity
		})
		for _, x := range backends {
			f.Backends = append(f.Backends, at(x, 1))
		}
		s, _, _ := compile(model.Balancing{Machine: "m"}, f)
		owners[s.target.key] = f.Frontend.Owner
		return s
	}
	got := share([]service{
		build("192.0.2.1", 80, "web", time.Hour, "10.0.0.1:80", "10.0.0.2:80"),
		build("192.0.2.1", 443, "web", time.Hour, "10.0.0.1:443", "10.0.0.2:443"),
		build("192.0.2.1", 25, "mail", time.Hour, "10.0.0.1:25", "10.0.0.2:25"),    // another owner
		build("192.0.2.1", 81, "web", time.Hour, "10.0.0.1:81"),                    // other backends
		build("192.0.2.1", 82, "web", time.Hour, "10.0.0.1:8082", "10.0.0.2:8082"), // other ports
		build("192.0.2.1", 83, "web", 0, "10.0.0.1:83", "10.0.0.2:83"),             // no affinity
		build("192.0.2.2", 80, "web", time.Hour, "10.0.0.1:80", "10.0.0.2:80"),     // another VIP
		build("192.0.2.1", 84, "web", 2*time.Hour, "10.0.0.1:84", "10.0.0.2:84"),   // another time
		build("192.0.2.1", 85, "web", time.Hour, "10.0.0.2:85", "10.0.0.1:85"),     // the first's
	}, owners)
	groups := map[string]bool{}
	marks := map[uint32]bool{}
	for _, s := range got {
		var ports []string
		for _, k := range s.frontends {
			ports = append(ports, strings.TrimPrefix(k.String(), "tcp://192.0.2."))
		}
		text := strings.Join(ports, " ")
		if s.target.mark != 0 {
			text = "marked " + text
			if marks[s.target.mark] || s.target.mark&markMask != markBase {
				t.Errorf("%s: mark %#x", text, s.target.mark)
			}
			marks[s.target.mark] = true
		}
		groups[text] = true
	}
	for _, want := range []string{"marked 1:80 1:443 1:85", "marked 1:25", "marked 1:81", "1:82", "1:83", "marked 2:80", "marked 1:84"} {
		if !groups[want] {
			t.Errorf("no service of %s in %v", want, groups)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d services: %v", len(got), groups)
	}
}

func TestMemory(t *testing.T) {
	dir := t.TempDir()
	k := model.FrontendKey{VIP: netip.MustParseAddr("2001:db8::1"), Transport: model.UDP, Port: 53}
	m, err := recall(dir, "this-boot")
	if err != nil || len(m.ours) != 0 {
		t.Fatalf("got %v: %v", m, err)
	}
	if err := m.keep(map[model.FrontendKey]bool{k: true}); err != nil {
		t.Fatal(err)
	}
	if m, err := recall(dir, "this-boot"); err != nil || !m.ours[k] || len(m.ours) != 1 {
		t.Errorf("got %v: %v", m, err)
	}
	if m, err := recall(dir, "next-boot"); err != nil || len(m.ours) != 0 {
		t.Errorf("after a boot %v: %v", m, err)
	}
	for _, bad := range []string{"{", `{"boot":"this-boot","services":["web"]}`} {
		if err := os.WriteFile(filepath.Join(dir, "ipvs.json"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := recall(dir, "this-boot"); err == nil {
			t.Errorf("%s gives %v", bad, m)
		}
	}
}

func TestConnections(t *testing.T) {
	for line, want := range map[string]string{
		"TCP 0A5B000A 8F2C C000020A 0050 0A5C0015 1F90 ESTABLISHED     893":                                                                                        "10.91.0.10:36652 tcp://192.0.2.10:80 10.92.0.21:8080 ESTABLISHED 14m53s",
		"UDP [fd91:0000:0000:0000:0000:0000:0000:0010] 8F2C [2001:0db8:0001:0000:0000:0000:0000:0010] 0035 [fd92:0000:0000:0000:0000:0000:0000:0021] 0035 UDP 300": "[fd91::10]:36652 udp://[2001:db8:1::10]:53 [fd92::21]:53 UDP 5m0s",
		"Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData":                                                                          "",
		"TCP 0A5B000A 0000 C000020A 0050 0A5C0015 1F90 NONE            893":                                                                                        "", // a template
		"TCP 0A5B000 8F2C C000020A 0050 0A5C0015 1F90 ESTABLISHED 893":                                                                                             "",
		"": "",
	} {
		c, ok := parseConnection(line)
		got := ""
		if ok {
			got = strings.Join([]string{c.client.String(), c.frontend.String(), c.backend.String(), c.state, c.expires.String()}, " ")
		}
		if got != want {
			t.Errorf("%q gives %q, want %q", line, got, want)
		}
	}
}
