package plane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
)

func machineNamed(name string) *v1alpha1.Machine {
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// holds says that a Machine shows these addresses, and why not others.
func holds(status metav1.ConditionStatus, reason, says string, addresses ...string) func(*v1alpha1.Machine) error {
	return func(m *v1alpha1.Machine) error {
		if !slices.Equal(m.Status.Addresses, addresses) {
			return fmt.Errorf("addresses are %v, want %v", m.Status.Addresses, addresses)
		}
		for _, c := range m.Status.Conditions {
			if c.Type == v1alpha1.MachineAddressesHeld && !strings.Contains(c.Message, says) {
				return fmt.Errorf("the message is %q", c.Message)
			}
		}
		return conditionIs(m.Status.Conditions, v1alpha1.MachineAddressesHeld, status, reason)
	}
}

// A machine has what an operator says of it, and nothing that it only reports.
func TestAddressesOfMachines(t *testing.T) {
	r := newRig(t)
	p := r.plane("one", func(c *Config) {
		c.MachineAddresses = []RoleAddresses{{v1alpha1.RoleEdge, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}}
	}).awaitReady()
	address := p.AgentAddress().String()
	a := r.joined(p, "edge-1")
	a.with(func() { a.reports = []string{"198.18.0.1", "198.18.0.2"} })
	defer a.connect(address)()
	await(r, machineNamed("edge-1"), "what it reports is not its own", holds(metav1.ConditionFalse, v1alpha1.MachineReasonUnproven, "198.18.0.1, 198.18.0.2"))
	says := func(text string) error {
		for _, problem := range p.Status(t.Context()).Problems {
			if problem.Subject == "Machine edge-1" && strings.Contains(problem.Message, text) {
				return nil
			}
		}
		return errors.New("the status does not say " + text)
	}
	eventually(t, "the status says so", func() error { return says("spec.addresses") })

	edit(r, machineNamed("edge-1"), func(m *v1alpha1.Machine) { m.Spec.Addresses = []string{"198.18.0.2"} })
	await(r, machineNamed("edge-1"), "its spec says one", holds(metav1.ConditionTrue, v1alpha1.MachineReasonHeld, "198.18.0.1", "198.18.0.2"))

	a.with(func() { a.reports = []string{"10.0.0.7", "198.18.0.2"} })
	await(r, machineNamed("edge-1"), "the network of its role says the other", holds(metav1.ConditionTrue, v1alpha1.MachineReasonHeld, "no other claims them", "10.0.0.7", "198.18.0.2"))

	// Another one says the same.
	b := r.joined(p, "edge-2")
	b.with(func() { b.reports = []string{"10.0.0.7"} })
	disconnect := b.connect(address)
	await(r, machineNamed("edge-2"), "both are told", holds(metav1.ConditionFalse, v1alpha1.MachineReasonContested, "10.0.0.7 is also claimed by Machine edge-1 and belongs to neither", "10.0.0.7"))
	await(r, machineNamed("edge-1"), "both are told", holds(metav1.ConditionFalse, v1alpha1.MachineReasonContested, "10.0.0.7 is also claimed by Machine edge-2", "10.0.0.7", "198.18.0.2"))
	eventually(t, "the status says so", func() error { return says("edge-2") })
	edit(r, machineNamed("edge-1"), func(m *v1alpha1.Machine) { m.Spec.Addresses = []string{"198.18.0.2", "10.0.0.7"} })
	await(r, machineNamed("edge-1"), "its spec decides", holds(metav1.ConditionTrue, v1alpha1.MachineReasonHeld, "", "10.0.0.7", "198.18.0.2"))
	await(r, machineNamed("edge-2"), "its spec decides", holds(metav1.ConditionFalse, v1alpha1.MachineReasonContested, "10.0.0.7 belongs to Machine edge-1, whose spec names it", "10.0.0.7"))
	disconnect()
}

// A plane that is newer than its agents, or has just begun to lead, takes no address away that was
// a machine's.
func TestAddressesStayUntilTheyWereTried(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	disconnect := a.connect(p.AgentAddress().String())
	held := addressesOf("edge-1")
	await(r, machineNamed("edge-1"), "the machine has its addresses", holds(metav1.ConditionTrue, v1alpha1.MachineReasonHeld, "", held...))
	disconnect()
	p.stop()

	p = r.plane("two", func(c *Config) { c.MachineAddresses = nil }).awaitReady()
	a.with(func() { a.unproved = true })
	defer a.connect(p.AgentAddress().String())()
	edit(r, machineNamed("edge-1"), func(m *v1alpha1.Machine) { m.Spec.Cordoned = true })
	eventually(t, "the machine has reported", func() error {
		for _, m := range p.Status(t.Context()).Machines {
			if m.Cordoned && !m.LastReport.IsZero() {
				if !slices.Equal(m.Addresses, held) {
					t.Errorf("addresses are %v, want %v", m.Addresses, held)
				}
				return nil
			}
		}
		return errors.New("it has not")
	})
	a.with(func() { a.unproved = false })
	await(r, machineNamed("edge-1"), "they were tried", holds(metav1.ConditionFalse, v1alpha1.MachineReasonUnproven, ""))
}

// Agents are told addresses at which they reach the plane, a few of each family.
func TestEndpointsOfAPlane(t *testing.T) {
	own := func() ([]netip.Addr, error) {
		var list []netip.Addr
		for i := range 9 {
			list = append(list, netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i)))
		}
		return append(list, netip.MustParseAddr("2001:db8::1")), nil
	}
	for _, c := range []struct {
		listens string
		own     func() ([]netip.Addr, error)
		want    []string
	}{
		{"192.0.2.80:7443", own, []string{"192.0.2.80:7443"}},
		{"[::]:7443", own, []string{"192.0.2.0:7443", "192.0.2.1:7443", "192.0.2.2:7443", "192.0.2.3:7443", "[2001:db8::1]:7443"}},
		{"[::]:7443", nil, nil},
	} {
		p := &Plane{config: Config{Addresses: c.own}, address: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.listens))}
		if got := p.agentWays(); !slices.Equal(got, c.want) {
			t.Errorf("at %s: %v, want %v", c.listens, got, c.want)
		}
	}
	// As backends all are refused, and those of an API that listens everywhere.
	p := &Plane{
		config:  Config{Addresses: own, AdvertiseAddress: "198.51.100.7:443", API: netip.MustParseAddrPort("0.0.0.0:6443")},
		address: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.80:7443")),
	}
	got := p.ownEndpoints()
	if text := fmt.Sprint(got.Agents); text != "[192.0.2.80:7443 198.51.100.7:443]" {
		t.Errorf("agents call at %s", text)
	}
	if n := len(got.API); n != 11 || !slices.Contains(got.API, netip.MustParseAddrPort("192.0.2.8:6443")) || !slices.Contains(got.API, netip.MustParseAddrPort("198.51.100.7:6443")) {
		t.Errorf("the API is at %v", got.API)
	}
}

// A machine whose connections to the plane come from other addresses than those by which it calls others,
// through NAT, does not have its addresses.
func TestMachineBehindNAT(t *testing.T) {
	l := &loop{machines: map[string]*model.Machine{}}
	bridge := holding{held: []string{"10.244.1.1"}, doubts: []string{"198.18.0.7"}}
	for _, c := range []struct {
		main   bool
		spec   []string
		status metav1.ConditionStatus
	}{{true, nil, metav1.ConditionFalse}, {false, nil, metav1.ConditionTrue}, {true, []string{"198.18.0.8"}, metav1.ConditionTrue}} {
		live := machineNamed("edge-1")
		live.Spec.Addresses, bridge.main = c.spec, c.main
		if got := l.addressesHeld(live, bridge); got.Status != c.status || !strings.Contains(got.Message, "198.18.0.7") || !strings.Contains(got.Message, "--machine-addresses") {
			t.Errorf("%+v: the condition is %+v", c, got)
		}
	}
	p := &Plane{}
	p.server = new(southbound.Server)
	l.plane = p
	h := l.holding(machineNamed("edge-1"), southbound.MachineState{Proved: true, Addresses: []string{"198.18.0.7", "10.244.1.1", "2001:db8::7"}, Proven: []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("2001:db8::7")}})
	if !h.main || !slices.Equal(h.held, []string{"10.244.1.1", "2001:db8::7"}) {
		t.Errorf("it holds %+v", h)
	}
	h = l.holding(machineNamed("edge-1"), southbound.MachineState{Proved: true, Addresses: []string{"10.244.1.1", "198.18.0.7"}, Proven: []netip.Addr{netip.MustParseAddr("10.244.1.1")}})
	if h.main || !slices.Equal(h.doubts, []string{"198.18.0.7"}) {
		t.Errorf("it holds %+v", h)
	}
}

// Who reports what another machine has proven is not told how to get it.
func TestAddressesThatOthersHaveProven(t *testing.T) {
	l := &loop{machines: map[string]*model.Machine{}}
	c := l.addressesHeld(machineNamed("edge-1"), holding{held: []string{"10.0.0.1"}, others: []string{"10.0.0.7 (of edge-2)"}})
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.MachineReasonContested || !strings.Contains(c.Message, "10.0.0.7 (of edge-2)") {
		t.Errorf("the condition is %+v", c)
	}
	if strings.Contains(c.Message, "--machine-addresses") {
		t.Errorf("it names a remedy for addresses that nobody has: %s", c.Message)
	}
}
