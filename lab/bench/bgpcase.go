package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// bgpCase is one way in which an edge, or a VIP, comes or goes.
type bgpCase struct {
	name  string
	about string // what happens, and when the clock starts
	// asked: somebody asked for it, and nothing is lost. timed: only a timer finds it
	// out. supervised: mend is part of it, and the route may stay; keeps: it must.
	asked, timed, supervised, keeps bool

	prepare func(context.Context, *round) error
	act     func(context.Context, *round) error
	mend    func(context.Context, *round) error
	// route is watched until it has the next hops of want; default: the VIP's, without
	// the victim.
	routeOf func(*round) netip.Prefix
	wantOf  func(*round) []netip.Addr
}

// round is one time of a case.
type round struct {
	*trial
	victim   *lab.Machine
	began    time.Time // what the clock counts from
	assigned time.Time // when the status of the pool gave the address away; else zero
	envoy    lab.Resident
	probe    netip.Addr
}

func (p *round) agent() *rig.Agent { return p.site.agents[p.victim.Name()] }

func (c bgpCase) route(p *round) netip.Prefix {
	if c.routeOf != nil {
		return c.routeOf(p)
	}
	return host(vip)
}

func (c bgpCase) want(p *round) []netip.Addr {
	if c.wantOf != nil {
		return c.wantOf(p)
	}
	return nextHops(slices.DeleteFunc(slices.Clone(p.site.edges), func(m *lab.Machine) bool { return m == p.victim }))
}

// after is how long the losses of a round may take to show.
func (c bgpCase) after() time.Duration {
	if c.timed {
		return patience + 100*time.Millisecond
	}
	return 200 * time.Millisecond
}

// judge compares a row with what is promised.
func (c bgpCase) judge(bfd bool, row *BGPRow) (goal string, met bool) {
	switch {
	case c.keeps:
		return "route stays, 0 failed", row.RouteChanges == 0 && row.NewFailures.Total == 0
	case c.asked:
		return fmt.Sprintf("p50 < %d ms, 0 failed", gracefulGoal.Milliseconds()),
			row.RouteChanged.P50 < float64(gracefulGoal.Milliseconds()) && row.NewFailures.Total == 0
	}
	detection := noticed
	switch {
	case !c.timed && !c.supervised:
	case bfd:
		detection = bfdInterval * bfdMultiplier
	default: // also of a graceful restart: nothing else tells a dead machine from a dead agent
		detection = holdTime
	}
	limit := (detection + afterDetection).Milliseconds()
	if c.supervised {
		return fmt.Sprintf("outage max <= %d ms", limit), row.Outage.Max <= float64(limit)
	}
	return fmt.Sprintf("max <= %d ms", limit), row.RouteChanged.Max <= float64(limit)
}

// BGPCases are the names of the cases with what they are, in the order in which they
// are measured.
func BGPCases() (names []string, about map[string]string) {
	about = map[string]string{}
	for _, c := range bgpCases {
		names = append(names, c.name)
		about[c.name] = c.about
	}
	return names, about
}

func selectCases(names []string) ([]bgpCase, error) {
	if len(names) == 0 {
		return bgpCases, nil
	}
	var selected []bgpCase
	for _, name := range names {
		i := slices.IndexFunc(bgpCases, func(c bgpCase) bool { return c.name == name })
		if i < 0 {
			all, _ := BGPCases()
			return nil, fmt.Errorf("unknown case %q: the cases are %s", name, strings.Join(all, ", "))
		}
		selected = append(selected, bgpCases[i])
	}
	return selected, nil
}

// smallAnswer is what the backends of these benchmarks say.
var smallAnswer = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })

// supervisor is how long a supervisor waits before it starts an agent again: the
// RestartSec of docs/guides/operate.md.
const supervisor = 100 * time.Millisecond

var bgpCases = []bgpCase{
	{
		name: announce, asked: true,
		about: "a Gateway is created and gets a VIP of its own; the clock starts when the API is asked",
		act:   actAnnounce, mend: mendProbe,
		routeOf: func(p *round) netip.Prefix { return host(p.probe) },
		wantOf:  func(p *round) []netip.Addr { return nextHops(p.site.edges) },
	},
	{
		name: "delete", asked: true,
		about:   "the Gateway of a VIP is deleted; the clock starts when the API is asked",
		prepare: prepareProbe, act: actDelete,
		routeOf: func(p *round) netip.Prefix { return host(p.probe) },
		wantOf:  func(*round) []netip.Addr { return nil },
	},
	{
		name: "withdraw", asked: true,
		about: "an edge with drainTime 0s is cordoned; the clock starts when the API is asked",
		act:   actCordon, mend: mendCordon,
	},
	{
		name: "kill-agent", supervised: true, keeps: true,
		about:   "the agent is killed with -9 and started again after 0.1 s, as its supervisor does; Envoy lives",
		prepare: prepareEnvoy, act: actKillAgent, mend: mendAgent,
	},
	{
		name:    "kill-envoy",
		about:   "Envoy is killed with -9; the clock starts before the signal",
		prepare: prepareEnvoy, act: actKillEnvoy,
	},
	{
		name: "kill-all", supervised: true,
		about:   "agent and Envoy are killed with -9, and the agent is started again after 0.1 s; the clock starts before the first signal",
		prepare: prepareEnvoy, act: actKillAll, mend: mendAgent,
	},
	{
		name: "hang", timed: true,
		about:   "agent and Envoy are stopped (SIGSTOP); the clock starts before the first signal",
		prepare: prepareEnvoy, act: actHang, mend: mendHang,
	},
	{
		name: "link-cut", timed: true,
		about: "the edge's cables are pulled; the clock starts before that",
		act:   actCut, mend: mendCut,
	},
	{
		name: "blackhole", timed: true,
		about: "packets from and to the edge vanish, all links are up; the clock starts before that",
		act:   actBlackhole, mend: mendBlackhole,
	},
}

// probe is the Gateway that comes and goes.
const probe = "probe"

// announce is the case in which there is a new VIP to ask.
const announce = "announce"

// actAnnounce creates a Gateway and starts the clock when it has an address.
func actAnnounce(ctx context.Context, p *round) error {
	watch, err := p.site.api.Resource(pools).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer watch.Stop()
	var gateway unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(gatewayManifest(probe)), &gateway.Object); err != nil {
		return err
	}
	p.began = p.now()
	if _, err := p.site.api.Resource(gateways).Namespace("default").Create(ctx, &gateway, metav1.CreateOptions{}); err != nil {
		return err
	}
	limit := time.NewTimer(routeTime)
	defer limit.Stop()
	for {
		select {
		case e, ok := <-watch.ResultChan():
			if !ok {
				return errors.New("the watch of the pool has ended")
			}
			if a, ok := assigned(e.Object.(*unstructured.Unstructured)); ok {
				p.probe, p.assigned = a, p.now()
				return nil
			}
		case <-limit.C:
			return fmt.Errorf("the Gateway %s has no address within %s", probe, routeTime)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// assigned is the address that a pool's status gives the probe.
func assigned(pool *unstructured.Unstructured) (netip.Addr, bool) {
	list, _, _ := unstructured.NestedSlice(pool.Object, "status", "assignments")
	for _, x := range list {
		if a, ok := x.(map[string]any); ok && a["name"] == probe {
			address, err := netip.ParseAddr(fmt.Sprint(a["address"]))
			return address, err == nil
		}
	}
	return netip.Addr{}, false
}

func mendProbe(ctx context.Context, p *round) error {
	if err := p.site.api.Resource(gateways).Namespace("default").Delete(ctx, probe, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := p.await(ctx, host(p.probe), nil)
	return err
}

func prepareProbe(ctx context.Context, p *round) error {
	if err := actAnnounce(ctx, p); err != nil {
		return err
	}
	p.assigned = time.Time{}
	if _, err := p.await(ctx, host(p.probe), nextHops(p.site.edges)); err != nil {
		return err
	}
	return rest(ctx, calm)
}

func actDelete(ctx context.Context, p *round) error {
	return p.site.api.Resource(gateways).Namespace("default").Delete(ctx, probe, metav1.DeleteOptions{})
}

func actCordon(ctx context.Context, p *round) error {
	return p.site.patchMachine(ctx, p.victim.Name(), `{"spec":{"cordoned":true}}`)
}

func mendCordon(ctx context.Context, p *round) error {
	return p.site.patchMachine(ctx, p.victim.Name(), `{"spec":{"cordoned":false}}`)
}

func prepareEnvoy(_ context.Context, p *round) error {
	var err error
	p.envoy, err = p.agent().Envoy()
	return err
}

func actKillAgent(_ context.Context, p *round) error {
	p.agent().Process.Kill9()
	return nil
}

// mendAgent does what a supervisor does.
func mendAgent(ctx context.Context, p *round) error {
	if err := rest(ctx, time.Until(p.began.Add(supervisor))); err != nil {
		return err
	}
	if err := p.agent().Start(ctx); err != nil {
		return err
	}
	return p.agent().AwaitReady(ctx)
}

func actKillEnvoy(_ context.Context, p *round) error { return p.envoy.Kill9() }

func actKillAll(_ context.Context, p *round) error {
	err := p.agent().Process.Signal(unix.SIGKILL)
	return errors.Join(err, p.envoy.Kill9())
}

func actHang(_ context.Context, p *round) error {
	return errors.Join(p.agent().Process.Signal(unix.SIGSTOP), unix.Kill(p.envoy.Pid.ID, unix.SIGSTOP))
}

func mendHang(ctx context.Context, p *round) error {
	return errors.Join(unix.Kill(p.envoy.Pid.ID, unix.SIGCONT), p.agent().Process.Signal(unix.SIGCONT), renew(ctx, p))
}

func actCut(ctx context.Context, p *round) error { return p.victim.SetLink(ctx, false) }

func mendCut(ctx context.Context, p *round) error {
	return errors.Join(p.victim.SetLink(ctx, true), renew(ctx, p))
}

func actBlackhole(_ context.Context, p *round) error { return p.victim.SetBlackhole(true) }

func mendBlackhole(ctx context.Context, p *round) error {
	return errors.Join(p.victim.SetBlackhole(false), renew(ctx, p))
}

// renew starts the agent again beside its living Envoy: one that lost its session three
// times in two minutes would wait for minutes, as it should, but not here.
func renew(ctx context.Context, p *round) error {
	p.agent().Process.Kill9()
	if err := p.agent().Start(ctx); err != nil {
		return err
	}
	return p.agent().AwaitReady(ctx)
}
