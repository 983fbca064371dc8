package main

import (
	"bytes"
	"context"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
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
		d, err := parseDrained(text, "team")
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
	vip := func(address string, at ...string) model.VIPStatus {
		v := model.VIPStatus{Assignment: model.Assignment{Address: netip.MustParseAddr(address)}}
		for _, text := range at {
			machine, state, _ := strings.Cut(text, "=")
			v.At = append(v.At, model.VIPAt{Machine: machine, VIPObserved: model.VIPObserved{State: model.VIPState(state)}})
		}
		return v
	}
	vips := []model.VIPStatus{
		vip("192.0.2.1", "edge-1=announced"),
		vip("192.0.2.2", "edge-1=announced", "edge-2=withheld"),
		vip("192.0.2.3", "edge-1=announced", "edge-2=announced"),
		vip("192.0.2.4", "edge-1=announced", "edge-2=standby"),
		vip("192.0.2.5", "edge-1=withheld"),
		vip("192.0.2.6", "edge-2=announced"),
	}
	var got []string
	for _, v := range (drained{machine: "edge-1"}).alone(vips) {
		got = append(got, v.Address.String())
	}
	if want := []string{"192.0.2.1", "192.0.2.2"}; !slices.Equal(got, want) {
		t.Errorf("alone are %v, want %v", got, want)
	}
	if got := (drained{backend: netip.MustParseAddr("10.0.0.4")}).alone(vips); len(got) > 0 {
		t.Errorf("with a backend go %v", got)
	}
}

// Whoever drains a machine is told what it may not expect: a VIP that goes off the air, and
// backends that go on.
func TestDrainWarns(t *testing.T) {
	web := model.Object{Kind: "Service", Namespace: "shop", Name: "web"}
	s := model.Status{
		VIPs: []model.VIPStatus{{
			Assignment: model.Assignment{Address: netip.MustParseAddr("192.0.2.1"), Owner: web},
			At:         []model.VIPAt{{Machine: "edge-1", VIPObserved: model.VIPObserved{State: model.VIPAnnounced}}},
		}},
		Machines: []model.MachineStatus{{Name: "edge-1", Proxy: model.ProxyStatus{State: "ready"}}, {Name: "node-7", Proxy: model.ProxyStatus{State: "off"}}},
	}
	for machine, want := range map[string]string{
		"edge-1": "no other machine announces 192.0.2.1 (Service shop/web)",
		"node-7": "machine node-7 has backends only, and they go on",
		"edge-2": "",
	} {
		got := drained{machine: machine}.warnings(s)
		if (want == "") != (len(got) == 0) || len(got) > 1 || want != "" && !strings.Contains(got[0], want) {
			t.Errorf("of %s the warnings are %q, want %q", machine, got, want)
		}
	}
}

// TestDrainWaitsForFlows shows how many are left, of what is drained alone, until there is
// none.
func TestDrainWaitsForFlows(t *testing.T) {
	key := model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 80}
	var rows atomic.Pointer[func(n int) []model.BackendStatus]
	var asked, kept atomic.Int64 // kept: at so many questions the machine hands a VIP over
	s := httptest.NewServer(console.Handler(console.Config{Health: &served{}, Metrics: prometheus.NewRegistry(), Backends: func(context.Context, string) ([]model.BackendStatus, error) {
		return (*rows.Load())(int(asked.Add(1))), nil
	}, Status: func(context.Context) any {
		at := []model.VIPAt{{Machine: "edge-2", HandsOver: true}, {Machine: "edge-1", HandsOver: asked.Load() <= kept.Load(), VIPObserved: model.VIPObserved{State: model.VIPAnnounced}}}
		return model.Status{VIPs: []model.VIPStatus{{At: at}}}
	}}))
	defer s.Close()
	client := console.Client{URL: s.URL, HTTP: s.Client()}
	row := func(address, machine string, weight uint32, flows int) model.BackendStatus {
		return model.BackendStatus{
			Frontend: key, Known: flows >= 0, Flows: uint64(max(flows, 0)),
			FrontendBackend: model.FrontendBackend{Address: netip.MustParseAddrPort(address), Machine: machine, Weight: weight},
		}
	}
	backend := drained{backend: netip.MustParseAddr("10.0.0.4")}
	backend.service.Namespace, backend.service.Name = "shop", "web"
	for name, c := range map[string]struct {
		drained
		limit time.Duration
		kept  int64
		rows  func(n int) []model.BackendStatus
		lines string
		fails string
	}{
		"machine": {drained{machine: "edge-1"}, time.Hour, 6, func(n int) []model.BackendStatus {
			weight := uint32(0)
			if n == 1 {
				weight = 100
			}
			return []model.BackendStatus{row("192.0.2.1:80", "edge-1", weight, max(0, 5-n)), row("192.0.2.1:80", "edge-2", 100, 9), row("10.0.0.4:80", "edge-1", 100, 9)}
		}, "it goes on until another machine announces its VIPs|0 flows are left|machine edge-1 is drained", ""},
		"machine that nobody waits for": {drained{machine: "edge-1"}, time.Hour, 0, func(n int) []model.BackendStatus {
			return []model.BackendStatus{row("192.0.2.1:80", "edge-1", uint32(max(0, 2-n)*100), max(0, 5-n))}
		}, "the load balancers are being told|3 flows are left|2 flows are left|1 flows are left|0 flows are left|machine edge-1 is drained", ""},
		"backend": {backend, time.Hour, 0, func(int) []model.BackendStatus {
			return []model.BackendStatus{row("10.0.0.4:80", "edge-1", 0, 0), row("10.0.0.5:80", "", 100, 9)}
		}, "0 flows are left|backend 10.0.0.4 of Service shop/web is drained", ""},
		"another Service has the address": {backend, time.Hour, 0, func(int) []model.BackendStatus {
			mine, other := row("10.0.0.4:80", "", 0, 0), row("10.0.0.4:80", "", 100, 7)
			mine.Owner, other.Owner = model.Object{Kind: "Service", Namespace: "shop", Name: "web"}, model.Object{Kind: "Service", Namespace: "shop", Name: "api"}
			return []model.BackendStatus{mine, other}
		}, "0 flows are left|backend 10.0.0.4 of Service shop/web is drained", ""},
		"too long": {backend, time.Nanosecond, 0, func(int) []model.BackendStatus { return []model.BackendStatus{row("10.0.0.4:80", "", 0, 2)} }, "2 flows are left", "2 flows are left"},
		"machine that only passes on": {
			drained{machine: "edge-1"},
			time.Nanosecond, 0, func(int) []model.BackendStatus { return []model.BackendStatus{row("10.0.0.4:80", "", 100, 2)} },
			"no VIP leads to its proxy; what it passes on to backends is not counted|the drain time of machine edge-1 is over", "",
		},
		"machine that only passes on, and hands over first": {
			drained{machine: "edge-1"},
			time.Nanosecond, 3, func(int) []model.BackendStatus { return []model.BackendStatus{row("10.0.0.4:80", "", 100, 2)} },
			"it goes on until another machine announces its VIPs|no VIP leads to its proxy; what it passes on to backends is not counted|the drain time of machine edge-1 is over", "",
		},
		"not counted": {
			backend, time.Nanosecond, 0, func(int) []model.BackendStatus { return []model.BackendStatus{row("10.0.0.4:80", "", 0, -1)} },
			"no data plane counts its flows|the drain time of backend 10.0.0.4 of Service shop/web is over", "",
		},
	} {
		rows.Store(&c.rows)
		asked.Store(0)
		kept.Store(c.kept)
		var out bytes.Buffer
		err := c.await(t.Context(), &out, client, c.limit, time.Millisecond)
		var lines []string
		for line := range strings.Lines(out.String()) {
			text, _, _ := strings.Cut(strings.TrimSpace(line), " (")
			lines = append(lines, text)
		}
		if got := strings.Join(lines, "|"); got != c.lines {
			t.Errorf("%s: it says %s, want %s", name, got, c.lines)
		}
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %v, want %q", name, err, c.fails)
		}
	}
}

// TestDrainTimeIsThePolicys holds that a backend is waited for as long as its flows are kept.
func TestDrainTimeIsThePolicys(t *testing.T) {
	address := netip.MustParseAddrPort("10.0.0.4:80")
	row := func(drain time.Duration) model.BackendStatus {
		return model.BackendStatus{FrontendBackend: model.FrontendBackend{Address: address}, Drain: drain, Known: true, Flows: 1}
	}
	d := drained{backend: address.Addr()}
	other := row(time.Hour)
	other.Address = netip.MustParseAddrPort("10.0.0.5:80")
	for want, rows := range map[time.Duration][]model.BackendStatus{
		10 * time.Minute: {row(10 * time.Minute), other},
		2 * time.Minute:  {row(time.Second), row(2 * time.Minute)},
		drainDefault:     {other},
	} {
		if got := d.drainTime(rows); got != want {
			t.Errorf("%+v: it waits for %s, want %s", rows, got, want)
		}
	}
	s := httptest.NewServer(console.Handler(console.Config{Health: &served{}, Metrics: prometheus.NewRegistry(), Backends: func(context.Context, string) ([]model.BackendStatus, error) {
		return []model.BackendStatus{row(10 * time.Minute)}, nil
	}}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	out := &firstLine{then: cancel}
	if err := d.await(ctx, out, console.Client{URL: s.URL, HTTP: s.Client()}, 0, time.Millisecond); err == nil || !strings.Contains(out.text, "1 flows are left (10m0s of the drain time)") {
		t.Errorf("it says %q, %v", out.text, err)
	}
}

// firstLine keeps what is written first, and then does something.
type firstLine struct {
	text string
	then func()
}

func (l *firstLine) Write(p []byte) (int, error) {
	if l.text == "" {
		l.text = string(p)
		l.then()
	}
	return len(p), nil
}

func TestOwnersHaveANamespace(t *testing.T) {
	for name, want := range map[string]string{
		"web": "team/web", "shop/web": "shop/web", "tcp://192.0.2.1:80": "tcp://192.0.2.1:80", "192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1",
		"Gateway shop/web": "Gateway shop/web",
	} {
		if got := ownerOf(name, "team"); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
