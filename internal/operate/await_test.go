package operate

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

// atNumber is until which question something is so of edge-1.
type atNumber struct {
	proxy string // state of the proxy of edge-1

	untold, undelivered, away, silent, leaderless, handsOver, announces, justCame int

	silentFrom, silentTo int // the plane does not answer

	l2 bool // its VIP is
}

const never = 1 << 30

// TestDrainWaitsForFlows shows how many are left, of what is drained alone, until there is
// none.
func TestDrainWaitsForFlows(t *testing.T) {
	key := v1.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: v1.TCP, Port: 80}
	var rows atomic.Pointer[func(n int) []v1.BackendStatus]
	var asked atomic.Int64
	var at atomic.Pointer[atNumber]
	plane := fakePlane{backends: func() ([]v1.BackendStatus, error) {
		n := int(asked.Add(1))
		if p := at.Load(); n >= p.silentFrom && n <= p.silentTo {
			return nil, errors.New("no plane leads")
		}
		return (*rows.Load())(n), nil
	}, status: func() v1.Status {
		n, p := int(asked.Load()), at.Load()
		state := v1.VIPWithheld
		var announces []netip.Addr
		if n <= max(p.handsOver, p.announces) {
			state, announces = v1.VIPAnnounced, []netip.Addr{key.VIP}
		}
		wanted, delivered := uint64(n+10), uint64(n) // something changes all the time
		if n > p.undelivered {
			delivered = wanted - uint64(min(p.undelivered, 1))
		}
		states := []v1.VIPAt{{Machine: "edge-2", HandsOver: true, VIPObserved: v1.VIPObserved{State: v1.VIPAnnounced}}, {Machine: "edge-1", HandsOver: n <= p.handsOver, VIPObserved: v1.VIPObserved{State: state}}}
		mode, reported := v1.AnnounceBGP, time.Time{}
		if p.l2 {
			mode = v1.AnnounceL2
		}
		if n > p.silent {
			reported = time.Now()
		}
		return v1.Status{
			Plane: v1.PlaneStatus{Leading: n > p.leaderless, Epoch: 2},
			Machines: []v1.MachineStatus{
				{Name: "edge-2", Connected: true, Cordoned: true, LastReport: time.Now()},
				{Name: "edge-1", Connected: n > p.away, Cordoned: n > p.untold, LastReport: reported, Wanted: wanted, Delivered: delivered, Announces: announces, JustCame: n <= p.justCame, Proxy: v1.ProxyStatus{State: p.proxy}},
				{Name: "off-1", Cordoned: true},
			},
			VIPs: []v1.VIPStatus{{Assignment: v1.Assignment{Address: key.VIP, Mode: mode, Machines: []string{"edge-1", "edge-2"}}, At: states}},
		}
	}}
	row := func(address, machine string, weight uint32, flows int) v1.BackendStatus {
		return v1.BackendStatus{
			Frontend: key, Known: flows >= 0, Flows: uint64(max(flows, 0)),
			FrontendBackend: v1.FrontendBackend{Address: netip.MustParseAddrPort(address), Machine: machine, Weight: weight},
		}
	}
	uncounted := func(r v1.BackendStatus, is bool) v1.BackendStatus {
		if is {
			r.Uncounted = []string{"edge-1", "edge-2"}
		}
		return r
	}
	backend := Target{backend: netip.MustParseAddr("10.0.0.4")}
	backend.service.Namespace, backend.service.Name = "shop", "web"
	for name, c := range map[string]struct {
		Target
		limit time.Duration
		plane atNumber
		rows  func(n int) []v1.BackendStatus
		lines string
		fails string
	}{
		"machine": {Target{machine: "edge-1"}, time.Hour, atNumber{handsOver: 6}, func(n int) []v1.BackendStatus {
			weight := uint32(0)
			if n == 1 {
				weight = 100
			}
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", weight, max(0, 5-n)), row("192.0.2.1:80", "edge-2", 100, 9), row("10.0.0.4:80", "edge-1", 100, 9)}
		}, "it goes on until another machine announces its VIPs|0 flows are left|machine edge-1 is drained", ""},
		"machine that nobody waits for": {Target{machine: "edge-1"}, time.Hour, atNumber{}, func(n int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", uint32(max(0, 2-n)*100), max(0, 5-n))}
		}, "the load balancers are being told|3 flows are left|2 flows are left|1 flows are left|0 flows are left|machine edge-1 is drained", ""},
		"machine that the plane does not know to be cordoned": {Target{machine: "edge-1"}, time.Hour, atNumber{untold: 3}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 0)}
		}, "the load balancers are being told|0 flows are left|machine edge-1 is drained", ""},
		"machine that has not been told": {Target{machine: "edge-1"}, time.Hour, atNumber{undelivered: 3}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 0)}
		}, "it has not been told yet|0 flows are left|machine edge-1 is drained", ""},
		"machine whose agent has just started": {Target{machine: "edge-1"}, time.Hour, atNumber{justCame: 5}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 0)}
		}, "its agent has just connected: routers may still have routes of the one before|0 flows are left|machine edge-1 is drained", ""},
		"machine that does not say how many flows it has": {Target{machine: "edge-1"}, time.Hour, atNumber{}, func(n int) []v1.BackendStatus {
			return []v1.BackendStatus{uncounted(row("192.0.2.1:80", "edge-1", 0, 0), n <= 3)}
		}, "edge-1, edge-2 does not say how many flows it has|0 flows are left|machine edge-1 is drained", ""},
		"machine that never says how many flows it has": {Target{machine: "edge-1"}, time.Nanosecond, atNumber{}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{uncounted(row("192.0.2.1:80", "edge-1", 0, 0), true)}
		}, "edge-1, edge-2 does not say how many flows it has", "edge-1, edge-2 does not say how many flows it has"},
		"machine of which one frontend is not counted": {Target{machine: "edge-1"}, time.Nanosecond, atNumber{}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 0), row("192.0.2.1:80", "edge-1", 0, -1)}
		}, "no data plane counts its flows|machine edge-1 is drained: it announces no VIP. The drain time is over; its flows cannot be counted", ""},
		"machine of which one frontend is not counted, with flows": {Target{machine: "edge-1"}, time.Nanosecond, atNumber{}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 1), row("192.0.2.1:80", "edge-1", 0, -1)}
		}, "1 flows are left", "1 flows are left"},
		"backend whose plane does not lead yet": {backend, time.Hour, atNumber{leaderless: 2}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("10.0.0.4:80", "", 0, 0)}
		}, "the plane does not know its machines yet|0 flows are left|backend 10.0.0.4 of Service shop/web is drained", ""},
		"machine that announces still": {Target{machine: "edge-1"}, time.Hour, atNumber{announces: 4}, func(n int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, max(0, 3-n))}
		}, "2 flows are left|1 flows are left|it announces 192.0.2.1 still|0 flows are left|machine edge-1 is drained", ""},
		"machine that does not withdraw": {Target{machine: "edge-1"}, 5 * time.Millisecond, atNumber{announces: never}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 0)}
		}, "it announces 192.0.2.1 still", "the drain time of machine edge-1 is over: it announces 192.0.2.1 still"},
		"machine that does not withdraw, uncounted": {Target{machine: "edge-1"}, time.Nanosecond, atNumber{announces: never}, func(int) []v1.BackendStatus {
			return nil
		}, "it announces 192.0.2.1 still", "it announces 192.0.2.1 still"},
		"machine that owns a VIP still": {Target{machine: "edge-1"}, time.Hour, atNumber{announces: 3, l2: true}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 0)}
		}, "it announces 192.0.2.1 still|0 flows are left|machine edge-1 is drained", ""},
		"machine that has not reported to a new leader": {Target{machine: "edge-1"}, time.Hour, atNumber{leaderless: 2, silent: 4}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 0)}
		}, "the plane does not know its machines yet|it has not reported to this plane yet|0 flows are left|machine edge-1 is drained", ""},
		"machine that was deleted": {Target{machine: "edge-3"}, time.Nanosecond, atNumber{}, func(int) []v1.BackendStatus {
			return nil
		}, "the Machine was deleted: its agent keeps serving its present configuration", "the Machine was deleted"},
		"machine without VIPs that is off": {Target{machine: "off-1"}, time.Nanosecond, atNumber{}, func(int) []v1.BackendStatus {
			return nil
		}, "it is not connected: whether it announces VIPs is not known", "it is not connected"},
		"machine drained while another plane begins to lead": {Target{machine: "edge-1"}, time.Hour, atNumber{silentFrom: 2, silentTo: 4}, func(n int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, max(0, 6-n))}
		}, "5 flows are left|the plane does not answer|1 flows are left|0 flows are left|machine edge-1 is drained", ""},
		"machine whose plane is gone": {Target{machine: "edge-1"}, time.Hour, atNumber{silentFrom: 2, silentTo: never}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, 5)}
		}, "5 flows are left|the plane does not answer", "no plane leads"},
		"backend whose plane is gone": {backend, time.Hour, atNumber{silentFrom: 2, silentTo: 2}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("10.0.0.4:80", "", 0, 5)}
		}, "5 flows are left", "no plane leads"},
		"machine whose plane never answers": {Target{machine: "edge-1"}, time.Hour, atNumber{silentFrom: 1, silentTo: 1}, func(int) []v1.BackendStatus {
			return nil
		}, "", "no plane leads"},
		"machine that is away": {Target{machine: "edge-1"}, time.Nanosecond, atNumber{away: never}, func(int) []v1.BackendStatus {
			return nil
		}, "it is not connected: whether it announces VIPs is not known", "it is not connected"},
		"machine whose drain time begins after it has handed over": {Target{machine: "edge-1"}, time.Second, atNumber{handsOver: 1200}, func(n int) []v1.BackendStatus {
			return []v1.BackendStatus{row("192.0.2.1:80", "edge-1", 0, max(0, 1202-n))}
		}, "it goes on until another machine announces its VIPs|1 flows are left|0 flows are left|machine edge-1 is drained", ""},
		"backend": {backend, time.Hour, atNumber{}, func(int) []v1.BackendStatus {
			return []v1.BackendStatus{row("10.0.0.4:80", "edge-1", 0, 0), row("10.0.0.5:80", "", 100, 9)}
		}, "0 flows are left|backend 10.0.0.4 of Service shop/web is drained", ""},
		"another Service has the address": {backend, time.Hour, atNumber{}, func(int) []v1.BackendStatus {
			mine, other := row("10.0.0.4:80", "", 0, 0), row("10.0.0.4:80", "", 100, 7)
			mine.Owner, other.Owner = v1.Object{Kind: "Service", Namespace: "shop", Name: "web"}, v1.Object{Kind: "Service", Namespace: "shop", Name: "api"}
			return []v1.BackendStatus{mine, other}
		}, "0 flows are left|backend 10.0.0.4 of Service shop/web is drained", ""},
		"too long": {backend, time.Nanosecond, atNumber{}, func(int) []v1.BackendStatus { return []v1.BackendStatus{row("10.0.0.4:80", "", 0, 2)} }, "2 flows are left", "2 flows are left"},
		"machine that only passes on": {
			Target{machine: "edge-1"},
			time.Nanosecond,
			atNumber{},
			func(int) []v1.BackendStatus { return []v1.BackendStatus{row("10.0.0.4:80", "", 100, 2)} },
			"no VIP leads to its proxy; flows that it forwards to backends are not counted|the drain time of machine edge-1 is over: it announces no VIP; flows that it forwards to backends are not counted. Backends on it, if any, go on to take flows: drain each with 'fairlead drain SERVICE/ADDRESS'", "",
		},
		"machine that has backends only": {
			Target{machine: "edge-1"},
			time.Nanosecond,
			atNumber{proxy: "off"},
			func(int) []v1.BackendStatus { return []v1.BackendStatus{row("10.0.0.4:80", "", 100, 2)} },
			"it has backends only; their flows are not counted for a machine|the drain time of machine edge-1 is over: it announces no VIP; its backends go on to take flows, which are not counted for a machine: drain each with 'fairlead drain SERVICE/ADDRESS'", "",
		},
		"machine that only passes on, and hands over first": {
			Target{machine: "edge-1"},
			time.Nanosecond,
			atNumber{handsOver: 3},
			func(int) []v1.BackendStatus { return []v1.BackendStatus{row("10.0.0.4:80", "", 100, 2)} },
			"it goes on until another machine announces its VIPs|no VIP leads to its proxy; flows that it forwards to backends are not counted|the drain time of machine edge-1 is over: it announces no VIP; flows that it forwards to backends are not counted. Backends on it, if any, go on to take flows: drain each with 'fairlead drain SERVICE/ADDRESS'", "",
		},
		"not counted": {
			backend, time.Nanosecond,
			atNumber{},
			func(int) []v1.BackendStatus { return []v1.BackendStatus{row("10.0.0.4:80", "", 0, -1)} },
			"no data plane counts its flows|the drain time of backend 10.0.0.4 of Service shop/web is over; no data plane counts its flows", "",
		},
	} {
		rows.Store(&c.rows)
		asked.Store(0)
		at.Store(&c.plane)
		var out shown
		outcome, err := c.Await(t.Context(), plane, Times{limit: &c.limit, withdraws: 50 * time.Millisecond, silence: 50 * time.Millisecond, poll: time.Millisecond}, out.show)
		lines := out.lines
		if outcome != "" {
			lines = append(lines, outcome)
		}
		if got := strings.Join(lines, "|"); got != c.lines {
			t.Errorf("%s: it says %s, want %s", name, got, c.lines)
		}
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %v, want %q", name, err, c.fails)
		}
	}
}

// TestDrainWaitsForNewFigures holds that figures which may be of before it was drained are not
// believed, and that a hand-over is waited for no longer than was asked.
func TestDrainWaitsForNewFigures(t *testing.T) {
	d := Target{machine: "edge-1"}
	vip := netip.MustParseAddr("192.0.2.1")
	var ready, handsOver atomic.Int64 // of questions
	var asked atomic.Int64
	var seen time.Time
	plane := fakePlane{backends: func() ([]v1.BackendStatus, error) {
		b := v1.BackendStatus{Frontend: v1.FrontendKey{VIP: vip, Transport: v1.TCP, Port: 80}, Known: true}
		if b.Address, b.Machine = netip.AddrPortFrom(vip, 80), "edge-1"; asked.Add(1) <= ready.Load() {
			b.Weight = 100
		} else if seen.IsZero() {
			seen = time.Now()
		}
		return []v1.BackendStatus{b}, nil
	}, status: func() v1.Status {
		return v1.Status{
			Plane: v1.PlaneStatus{Leading: true}, Machines: []v1.MachineStatus{{Name: "edge-1", Connected: true, Cordoned: true, LastReport: time.Now()}},
			VIPs: []v1.VIPStatus{{At: []v1.VIPAt{{Machine: "edge-1", HandsOver: asked.Load() <= handsOver.Load()}}}},
		}
	}}
	limit := time.Duration(0)
	ready.Store(3)
	const confirm = 300 * time.Millisecond
	times := Times{limit: &limit, withdraws: time.Minute, silence: time.Minute, confirm: confirm, poll: time.Millisecond}
	var out shown
	if _, err := d.Await(t.Context(), plane, times, out.show); err != nil || time.Since(seen) < confirm {
		t.Errorf("drained after %s: %v\n%s", time.Since(seen), err, out.lines)
	}
	handsOver.Store(never)
	times.handover = 10 * time.Millisecond
	if _, err := d.Await(t.Context(), plane, times, out.show); err == nil || !strings.Contains(err.Error(), "not drained: it goes on until another machine announces its VIPs") {
		t.Errorf("while it hands over: %v", err)
	}
}

// TestDrainTimeIsThePolicys holds that a backend is waited for as long as its flows are kept.
func TestDrainTimeIsThePolicys(t *testing.T) {
	address := netip.MustParseAddrPort("10.0.0.4:80")
	row := func(drain time.Duration) v1.BackendStatus {
		return v1.BackendStatus{FrontendBackend: v1.FrontendBackend{Address: address}, Drain: drain, Known: true, Flows: 1}
	}
	d := Target{backend: address.Addr()}
	other := row(time.Hour)
	other.Address = netip.MustParseAddrPort("10.0.0.5:80")
	for want, rows := range map[time.Duration][]v1.BackendStatus{
		10 * time.Minute: {row(10 * time.Minute), other},
		2 * time.Minute:  {row(time.Second), row(2 * time.Minute)},
		defaultDrainTime: {other},
	} {
		if got := d.drainTime(rows); got != want {
			t.Errorf("%+v: it waits for %s, want %s", rows, got, want)
		}
	}
	plane := fakePlane{backends: func() ([]v1.BackendStatus, error) {
		return []v1.BackendStatus{row(10 * time.Minute)}, nil
	}, status: func() v1.Status { return v1.Status{Plane: v1.PlaneStatus{Leading: true}} }}
	ctx, cancel := context.WithCancel(t.Context())
	var first Progress
	show := func(p Progress) error { first = p; cancel(); return nil }
	if _, err := d.Await(ctx, plane, Times{poll: time.Millisecond}, show); !errors.Is(err, context.Canceled) || first.Text != "1 flows are left" || first.Rest.Round(time.Second) != 10*time.Minute {
		t.Errorf("it shows %+v, %v", first, err)
	}
}

// fakePlane answers what a test makes up.
type fakePlane struct {
	backends func() ([]v1.BackendStatus, error)
	status   func() v1.Status
}

func (p fakePlane) Backends(context.Context, string) ([]v1.BackendStatus, error) {
	return p.backends()
}

func (p fakePlane) LeaderStatus(context.Context) (v1.Status, error) { return p.status(), nil }

// shown keeps each text of a progress once in a row.
type shown struct{ lines []string }

func (s *shown) show(p Progress) error {
	if n := len(s.lines); n == 0 || s.lines[n-1] != p.Text {
		s.lines = append(s.lines, p.Text)
	}
	return nil
}
