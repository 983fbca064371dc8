package operate

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
)

func TestWhatIsDrained(t *testing.T) {
	for text, want := range map[string]string{
		"edge-1":                     "machine edge-1",
		"web/10.0.0.4":               "backend 10.0.0.4 of Service team/web",
		"shop/web/2001:db8::4":       "backend 2001:db8::4 of Service shop/web",
		"shop/web/::ffff:10.0.0.4":   "backend 10.0.0.4 of Service shop/web",
		"web/here":                   "",
		"shop/web/10.0.0.4/too/much": "",
		"shop//10.0.0.4":             "",
		"":                           "",
	} {
		d, err := ParseTarget(text, "team")
		if (err == nil) != (want != "") || err == nil && d.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, d, err, want)
		}
	}
}

func TestAddressesComeAndGo(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.1")
	for _, c := range []struct {
		list string
		is   bool
		want string
	}{
		{"", true, "10.0.0.1"},
		{"10.0.0.2, garbage", true, "10.0.0.2,garbage,10.0.0.1"},
		{"10.0.0.1,10.0.0.2", true, "10.0.0.2,10.0.0.1"},
		{"10.0.0.1,10.0.0.2,::ffff:10.0.0.1", false, "10.0.0.2"},
		{"10.0.0.1", false, ""},
		{"", false, ""},
	} {
		if got := withAddress(c.list, a, c.is); got != c.want {
			t.Errorf("%q, %t: %q, want %q", c.list, c.is, got, c.want)
		}
	}
}

// A VIP that no other machine has goes off the air with the machine.
func TestDrainTellsWhichVIPsGoOffTheAir(t *testing.T) {
	vip := func(address string, at ...string) v1.VIPStatus {
		v := v1.VIPStatus{Assignment: v1.Assignment{Address: netip.MustParseAddr(address)}}
		for _, text := range at {
			machine, state, _ := strings.Cut(text, "=")
			v.At = append(v.At, v1.VIPAt{Machine: machine, VIPObserved: v1.VIPObserved{State: v1.VIPState(state)}})
		}
		return v
	}
	vips := []v1.VIPStatus{
		vip("192.0.2.1", "edge-1=announced"),
		vip("192.0.2.2", "edge-1=announced", "edge-2=withheld"),
		vip("192.0.2.3", "edge-1=announced", "edge-2=announced"),
		vip("192.0.2.4", "edge-1=announced", "edge-2=standby"),
		vip("192.0.2.5", "edge-1=withheld"),
		vip("192.0.2.6", "edge-2=announced"),
	}
	var got []string
	for _, v := range (Target{machine: "edge-1"}).alone(vips) {
		got = append(got, v.Address.String())
	}
	if want := []string{"192.0.2.1", "192.0.2.2"}; !slices.Equal(got, want) {
		t.Errorf("alone are %v, want %v", got, want)
	}
	if got := (Target{backend: netip.MustParseAddr("10.0.0.4")}).alone(vips); len(got) > 0 {
		t.Errorf("with a backend go %v", got)
	}
}

// Whoever drains a machine is told what it may not expect: a VIP that goes off the air, and
// backends that go on.
func TestDrainWarns(t *testing.T) {
	web := v1.Object{Kind: "Service", Namespace: "shop", Name: "web"}
	s := v1.Status{
		VIPs: []v1.VIPStatus{{
			Assignment: v1.Assignment{Address: netip.MustParseAddr("192.0.2.1"), Owner: web},
			At:         []v1.VIPAt{{Machine: "edge-1", VIPObserved: v1.VIPObserved{State: v1.VIPAnnounced}}},
		}},
		Machines: []v1.MachineStatus{{Name: "edge-1", Proxy: v1.ProxyStatus{State: "ready"}}, {Name: "node-7", Proxy: v1.ProxyStatus{State: "off"}}},
	}
	for machine, want := range map[string]string{
		"edge-1": "no other machine announces 192.0.2.1 (Service shop/web)",
		"node-7": "machine node-7 has backends only, and they go on",
		"edge-2": "",
	} {
		got := Target{machine: machine}.offTheAir(s)
		if (want == "") != (len(got) == 0) || len(got) > 1 || want != "" && !strings.Contains(got[0], want) {
			t.Errorf("of %s the warnings are %q, want %q", machine, got, want)
		}
	}
}

// Whoever drains the last backend that takes flows is told what breaks.
func TestDrainWarnsOfTheLastBackend(t *testing.T) {
	frontend := func(port uint16) v1.FrontendKey {
		return v1.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: v1.TCP, Port: port}
	}
	row := func(port uint16, address string, weight uint32) v1.BackendStatus {
		return v1.BackendStatus{Frontend: frontend(port), FrontendBackend: v1.FrontendBackend{Address: netip.MustParseAddrPort(address), Weight: weight}}
	}
	rows := []v1.BackendStatus{
		row(80, "10.0.0.4:80", 100), row(80, "10.0.0.5:80", 0),
		row(81, "10.0.0.4:81", 100), row(81, "10.0.0.5:81", 1),
		row(82, "10.0.0.4:82", 0),
	}
	got := Target{backend: netip.MustParseAddr("10.0.0.4")}.lastOf(rows)
	if len(got) != 1 || !strings.HasPrefix(got[0], "no other backend of tcp://192.0.2.1:80 accepts flows") {
		t.Errorf("it warns %q", got)
	}
}

// A plane that does not answer keeps nobody from draining, and is not passed over in silence.
func TestDrainWarnsOfAPlaneThatDoesNotAnswer(t *testing.T) {
	plane := silent{}
	for _, d := range []Target{{machine: "edge-1"}, {backend: netip.MustParseAddr("10.0.0.4")}} {
		if got := d.Warnings(t.Context(), plane); len(got) != 1 || !strings.HasPrefix(got[0], "the plane does not say wh") {
			t.Errorf("%s: it warns %q", d, got)
		}
	}
}

// silent is a plane that does not answer.
type silent struct{}

func (silent) Backends(context.Context, string) ([]v1.BackendStatus, error) {
	return nil, errors.New("no answer")
}

func (silent) LeaderStatus(context.Context) (v1.Status, error) {
	return v1.Status{}, errors.New("no answer")
}
