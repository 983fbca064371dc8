package ipvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"

	"fairlead.dev/internal/driver/lb/lbtest"
	"fairlead.dev/internal/model"
	"fairlead.dev/lab/uml"
)

var subject = lbtest.Subject{
	Kind: model.DataPlaneIPVS,
	New: func() (lbtest.DataPlane, error) {
		p, err := New(Config{StateDir: os.Getenv(stateDir), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		if err != nil {
			return nil, err
		}
		// Debian's user-mode kernel has nf_tables for bridges only.
		if err := p.marker.write(nil, nil); errors.Is(err, errors.ErrUnsupported) {
			p.marker = filters(os.Getenv(stateDir))
		}
		return p, nil
	},
	Dump: dump, Meddle: meddle, Damage: damage,
	Repair:   func(p lbtest.DataPlane) error { return p.(*Plane).Repair() },
	StateDir: stateDir,
	Settings: map[string]string{"net/ipv4/vs/expire_quiescent_template": "1", "net/ipv4/vs/expire_nodest_conn": "1"},
	Cannot: map[lbtest.Feature]string{
		lbtest.Sources: "use the data plane NFTables or XDP", lbtest.NewFlows: "use the data plane NFTables or XDP",
		lbtest.Watch: "its flow table is compared", lbtest.AnyRoute: "the machine is the backends' router",
		lbtest.QUIC: "use the data plane XDP", lbtest.DSRGeneve: "the data plane XDP",
	},
}

// stateDir is a directory for each test, which the child shares.
const stateDir = "FAIRLEAD_IPVS_TEST_STATE"

// modules that the contract takes.
var modules = []string{
	"veth", "bridge", "nf_tables", "ip_vs", "ip_vs_mh", "ip_vs_wrr", "ip_vs_wlc", "ip_vs_rr", "ipip", "ip6_tunnel", "nf_conntrack", "sch_ingress", "cls_flower", "act_skbedit",
}

func TestMain(m *testing.M) {
	if uml.Inside() {
		uml.Finish(m.Run())
	}
	lbtest.Main(m, subject)
}

// TestContract runs here if this kernel has IPVS, else in user-mode Linux.
func TestContract(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: IPVS")
	}
	if available() == nil {
		contract(t)
		return
	}
	guest(t, "TestContract")
}

func contract(t *testing.T) {
	t.Run("state", func(t *testing.T) { lbtest.State(t, subject) })
	t.Run("nat", func(t *testing.T) { lbtest.Traffic(t, subject) })
	for scheduler, cases := range map[string][]string{
		"wrr": {"shares", "no-new-flows", "draining"},
		"wlc": {"shares", "draining"}, // a backend that comes back gets all flows until it has as many as the others
	} {
		t.Run(scheduler, func(t *testing.T) {
			s := subject
			s.Policy = func(f *model.Frontend) { f.Scheduler = scheduler }
			lbtest.Traffic(t, s, cases...)
		})
	}
	for name, mode := range map[string]model.ForwardMode{"tunnel": model.ModeDSRIPIP, "direct": model.ModeDSRL2} {
		t.Run(name, func(t *testing.T) {
			s := subject
			s.Mode, s.Direct = mode, true
			s.Cannot = map[lbtest.Feature]string{lbtest.OtherPort: "keeps the port"}
			for feature, why := range subject.Cannot {
				s.Cannot[feature] = why
			}
			if mode == model.ModeDSRIPIP {
				s.Prepare = tunnels
			}
			lbtest.Traffic(t, s)
		})
	}
	t.Run("others-service", othersService)
	t.Run("without-marks", withoutMarks)
}

// tunnels makes a backend take packets out of tunnels.
func tunnels() error {
	for _, name := range []string{"tunl0", "ip6tnl0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

// guestPatience bounds a run in user-mode Linux: 40 s on a quiet machine, 10 minutes where six
// others want each processor, since it has one and each of its system calls changes tasks twice.
const guestPatience = 25 * time.Minute

// guest runs a test of this binary in user-mode Linux, and tells what its parts came to.
func guest(t *testing.T, test string) {
	ctx, cancel := context.WithTimeout(t.Context(), guestPatience)
	defer cancel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type part struct {
		name, result string
		output       []string
	}
	var parts []*part
	var current *part
	status, err := uml.Run(ctx, uml.Options{
		Binary: binary, Args: []string{"-test.v", "-test.run=^" + test + "$", fmt.Sprintf("-test.timeout=%v", guestPatience-time.Minute)}, Modules: modules, Dir: t.TempDir(),
		Line: func(line string) {
			t.Log(line)
			words := strings.Fields(line)
			switch {
			case len(words) == 3 && words[0] == "===" && (words[1] == "RUN" || words[1] == "NAME"):
				i := slices.IndexFunc(parts, func(p *part) bool { return p.name == words[2] })
				if i < 0 {
					i, parts = len(parts), append(parts, &part{name: words[2]})
				}
				current = parts[i]
			case len(words) == 4 && words[0] == "---":
				for _, p := range parts {
					if p.name == words[2] {
						p.result = strings.TrimSuffix(words[1], ":")
					}
				}
			case current != nil:
				current.output = append(current.output, line)
			}
		},
	})
	if errors.Is(err, uml.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		name, below := strings.CutPrefix(p.name, test+"/")
		if !below {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if p.result != "PASS" {
				t.Errorf("in user-mode Linux: %s\n%s", p.result, strings.Join(p.output, "\n"))
			}
		})
	}
	if status != 0 && !t.Failed() || len(parts) < 20 {
		t.Errorf("in user-mode Linux the test ended with %d after %d parts", status, len(parts))
	}
}

// othersService: a frontend that another program has an IPVS service for is refused, and that
// service stays.
func othersService(t *testing.T) {
	lbtest.InNamespace(t, func() error {
		p, err := New(Config{})
		if err != nil {
			return err
		}
		kernel, err := openKernel()
		if err != nil {
			return err
		}
		k := model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.10"), Transport: model.TCP, Port: 80}
		f := &model.Balanced{Frontend: &model.Frontend{FrontendKey: k, Machines: []string{"lb"}, Mode: model.ModeDSRL2}}
		theirs := service{target: target{key: k}, scheduler: "rr"}
		err = errors.Join(
			kernel.handle.NewService(theirs.svc()),
			p.Set(model.Balancing{Machine: "lb", Frontends: map[model.FrontendKey]*model.Balanced{k: f}}))
		if o := p.Observed(); len(o) != 1 || o[0].State != model.FrontendRefused || !strings.Contains(o[0].Message, "another program has an IPVS service") {
			t.Errorf("observed %#v", o)
		}
		err = errors.Join(err, kernel.handle.DelService(theirs.svc()), p.Repair())
		if o := p.Observed(); len(o) != 1 || o[0].State != model.FrontendBalanced {
			t.Errorf("after theirs had gone: %#v", o)
		}
		return errors.Join(err, p.Close(false))
	})
}

// unmarked is a marker of a kernel that cannot mark.
type unmarked struct{}

func (unmarked) read() (map[model.FrontendKey]uint32, error) { return nil, nil }

func (unmarked) write(_, _ map[model.FrontendKey]uint32) error { return unsupported("no marks here") }

func (unmarked) remove() error { return nil }

// withoutMarks: each port has its affinity, and the message says so.
func withoutMarks(t *testing.T) {
	lbtest.InNamespace(t, func() error {
		p, err := New(Config{})
		if err != nil {
			return err
		}
		p.marker = unmarked{}
		b := model.Balancing{Machine: "m", Frontends: map[model.FrontendKey]*model.Balanced{}}
		for _, port := range []uint16{80, 443} {
			f := frontend(func(f *model.Frontend) { f.Port, f.Affinity, f.Mode = port, time.Hour, model.ModeDSRL2 },
				model.FrontendBackend{Address: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), Weight: 1})
			b.Frontends[f.Frontend.FrontendKey] = f
		}
		for range 2 {
			if err := errors.Join(p.Set(b), p.Repair()); err != nil {
				return err
			}
			for _, o := range p.Observed() {
				if o.State != model.FrontendBalanced || o.Available != 1 || !strings.Contains(o.Message, "session affinity applies to each port separately: IPVS: no marks here") {
					t.Errorf("observed %#v", o)
				}
			}
		}
		now, err := p.look()
		if err == nil && len(now.present) != 2 {
			t.Errorf("there are services %v", now.present)
		}
		for target := range now.present {
			if target.mark != 0 {
				t.Errorf("there is a service of %s", target)
			}
		}
		return errors.Join(err, p.Close(false))
	})
}

// dump is all of IPVS, and the tables of nftables.
func dump() (string, error) {
	h, err := ipvs.New("")
	if err != nil {
		return "", err
	}
	defer h.Close()
	var lines []string
	services, err := h.GetServices()
	if err != nil {
		return "", err
	}
	for _, s := range services {
		line := fmt.Sprint(s.FWMark, s.Address, s.Protocol, s.Port, s.SchedName, s.Flags, s.Timeout)
		lines = append(lines, line)
		destinations, err := h.GetDestinations(s)
		if err != nil {
			return "", err
		}
		for _, d := range destinations {
			lines = append(lines, line+fmt.Sprint(" -> ", d.Address, d.Port, d.Weight, d.ConnectionFlags, d.UpperThreshold))
		}
	}
	marks, err := filters(os.Getenv(stateDir)).read()
	if err != nil {
		return "", err
	}
	for k, m := range marks {
		lines = append(lines, fmt.Sprintf("%s has mark %#x", k, m))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// meddle adds services, by address and by mark.
func meddle() error {
	h, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer h.Close()
	byAddress := service{target: target{key: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.10"), Transport: model.TCP, Port: 8443}}, scheduler: "rr"}
	byMark := service{target: target{mark: 7, is4: true}, scheduler: "rr"}
	a := netip.MustParseAddrPort("10.92.0.21:80")
	for _, s := range []service{byAddress, byMark} {
		if err := errors.Join(h.NewService(s.svc()), h.NewDestination(s.svc(), dest(a, backend{weight: 1}))); err != nil {
			return err
		}
	}
	return nil
}

// damage removes a service of ours.
func damage() error {
	h, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer h.Close()
	services, err := h.GetServices()
	if err != nil || len(services) == 0 {
		return fmt.Errorf("no service to remove: %w", err)
	}
	return h.DelService(services[0])
}
