package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/rig"
)

// The Service that machines balance in the kernel. Over IPv4 it leads to os1, over IPv6 to
// k8s1.
const (
	kernelService = "Service"
	kernelPort    = 80
)

// heldConnections is how many connections to each of its VIPs stand while a load balancer
// dies; each asks once a second.
const heldConnections = 200

// overKernel tells the route of the Service from those that proxies serve.
func (f flow) overKernel() bool { return f.route.kind == kernelService }

// kernelManifests are the Service, and where it leads.
func (st *stage) kernelManifests() string {
	var all strings.Builder
	fmt.Fprintf(&all, `apiVersion: v1
kind: Service
metadata: {name: echo, namespace: default}
spec:
  type: LoadBalancer
  loadBalancerClass: fairlead.dev/l4
  allocateLoadBalancerNodePorts: false
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  ports: [{name: http, port: %d}]
---
apiVersion: fairlead.dev/v1alpha1
kind: LoadBalancerPolicy
metadata: {name: echo, namespace: default}
spec:
  targetRefs: [{group: "", kind: Service, name: echo}]
  healthCheck: {type: HTTP, path: /status.html, interval: 1s}
`, kernelPort)
	for _, c := range clusters {
		family := "IPv4"
		if c.v6 {
			family = "IPv6"
		}
		fmt.Fprintf(&all, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-%s, namespace: default, labels: {kubernetes.io/service-name: echo}}
addressType: %s
ports: [{name: http, port: %d}]
endpoints:
`, c.name, family, c.port)
		for _, b := range st.backends {
			if b.Cluster == c.name {
				fmt.Fprintf(&all, "- {addresses: [%q], nodeName: %s, conditions: {ready: true}}\n", b.Address.Addr(), c.name)
			}
		}
	}
	return all.String()
}

// balance has machines with backends join, and a Service balanced in the kernel.
func (d *demo) balance(ctx context.Context, s *Step) error {
	st := d.stage
	if _, err := st.plane.Apply(ctx, st.kernelManifests()); err != nil {
		return err
	}
	nodes := st.Lab.Machines(lab.RoleBackends)
	for _, m := range nodes {
		agent, err := st.StartAgent(ctx, m, st.plane, rig.RoleBackend...)
		if err != nil {
			return err
		}
		st.agents[m.Name()] = agent
	}
	if err := st.plane.AwaitConnected(ctx, nodes...); err != nil {
		return err
	}
	var refused string
	if err := st.Await(ctx, "the Service to be balanced by every edge", func(ctx context.Context) error {
		var err error
		refused, err = st.balanced(ctx)
		return err
	}); err != nil {
		return err
	}
	if refused != "" {
		s.fact("this kernel lacks support: %s", refused)
		s.fact("the steps with connections in the kernel are left out")
		return nil
	}
	if err := st.Await(ctx, "the router to spread the Service's VIPs over every edge", func(ctx context.Context) error {
		hops, err := st.nextHops(ctx)
		if err != nil {
			return err
		}
		s.NextHops = slices.DeleteFunc(hops, func(h NextHops) bool { return h.Owner != kernelService })
		if len(s.NextHops) < len(clusters) || slices.ContainsFunc(s.NextHops, func(h NextHops) bool { return !slices.Equal(h.Edges, st.edgeNames()) }) {
			return fmt.Errorf("it has %v", s.NextHops)
		}
		return nil
	}); err != nil {
		return err
	}
	st.kernel = &route{kind: kernelService, host: "echo"}
	if err := d.sendToKernel(ctx, s); err != nil {
		return err
	}
	return d.show(ctx, s, "backends", "default/echo")
}

// balanced is nil once every edge balances the Service in a way in which flows find their
// backend through any edge, or says why one does not.
func (st *stage) balanced(ctx context.Context) (refused string, err error) {
	status, err := st.plane.Status(ctx)
	if err != nil {
		return "", err
	}
	var vips []netip.Addr
	for _, f := range status.Frontends {
		if f.Owner.Kind != kernelService {
			continue
		}
		vips = append(vips, f.VIP)
		n := 0
		for _, at := range f.At {
			switch {
			case at.State == v1.FrontendDecap:
			case at.State == v1.FrontendRefused, at.State == v1.FrontendBalanced && at.DataPlane != v1.DataPlaneXDP:
				return at.Message, nil
			case at.State == v1.FrontendBalanced && at.Mode == v1.ModeDSRGeneve && int(at.Available) == f.Backends:
				n++
			default:
				return "", fmt.Errorf("%s at %s: %s %s %s", f.FrontendKey, at.Machine, at.State, at.Mode, at.Message)
			}
		}
		if n != len(st.edges) {
			return "", fmt.Errorf("%s is balanced by %d edges", f.FrontendKey, n)
		}
	}
	if len(vips) != len(clusters) {
		return "", fmt.Errorf("the Service has %d frontends", len(vips))
	}
	slices.SortFunc(vips, netip.Addr.Compare)
	st.vips[kernelService] = vips
	return "", nil
}

// kernelConnections is how many connections show how flows are spread.
const kernelConnections = 1000

// sendToKernel sends one request over each of many new connections, and holds the
// backends' shares against their weights, which are equal.
func (d *demo) sendToKernel(ctx context.Context, s *Step) error {
	st := d.stage
	shares := RouteShares{Route: "Service default/echo", Host: "echo"}
	for _, f := range st.flows(st.kernel) {
		r, err := load.Do(ctx, load.Config{
			Address: f.address().String(), Host: f.route.host, Dial: st.client.Dial, Now: st.Now,
			Requests: kernelConnections, Concurrency: manyClients, NewConnections: true,
		})
		if err != nil {
			return err
		}
		s.count(r)
		s.why(r)
		cluster := "os1"
		if f.vip.Is6() {
			cluster = "k8s1"
		}
		weights := map[string]float64{}
		for _, b := range st.backends {
			if b.Cluster == cluster {
				weights[b.Name] = 1
			}
		}
		got := load.Split(r.Answers, weights, load.DefaultSigmas)
		if wrong := load.Wrong(got); wrong != "" {
			s.wrong("%s: %s", f.vip, wrong)
		}
		shares.Backends = append(shares.Backends, got...)
	}
	s.Shares = []RouteShares{shares}
	return nil
}

// shownFlows is how many lines of a table of flows are shown.
const shownFlows = 5

// show runs a command of fairlead on the plane's machine and keeps its screen; of flows the
// first that are open.
func (d *demo) show(ctx context.Context, s *Step, args ...string) error {
	c := d.stage.plane.Machine.Command(ctx, append([]string{d.Binary}, args...)...)
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("fairlead %s: %w", strings.Join(args, " "), err)
	}
	command := "$ fairlead " + strings.Join(args, " ")
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if args[0] == "flows" {
		command += fmt.Sprintf(" | grep -v closing | head -%d", shownFlows)
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "closing") })
		lines = lines[:min(len(lines), shownFlows)]
	}
	s.screen = append(s.screen, command)
	s.screen = append(s.screen, lines...)
	return nil
}

// strikeBalancer has a load balancer vanish and come back, or the other way round, while
// connections stand and requests run. None of them may notice.
func (d *demo) strikeBalancer(ctx context.Context, s *Step, what func(*traffic) error) error {
	st := d.stage
	t, err := st.steady(ctx, st.flows(st.kernel))
	if err != nil {
		return err
	}
	defer t.stop()
	s.traffic = t
	opening, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var held []*load.Held
	defer func() {
		for _, h := range held {
			h.Stop()
		}
	}()
	for _, f := range t.flows {
		h, err := load.Hold(opening, load.HoldConfig{
			Address: f.address().String(), Dial: st.client.Dial, Host: f.route.host,
			Connections: heldConnections, Every: time.Second, Now: st.Now,
		})
		if err != nil {
			return err
		}
		held = append(held, h)
	}
	s.event = d.Now()
	if err := what(t); err != nil {
		return err
	}
	answered := d.Now()
	if err := st.awaitCount(ctx, t, answered, 1000); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	broken := 0
	for _, h := range held {
		// Each connection is asked again after all that: those that broke are seen.
		if err := h.Whole(waiting, answered); err != nil {
			return err
		}
		broken += len(h.Broken(time.Time{}))
	}
	r := t.report()
	s.count(r)
	s.why(r)
	s.figure("held", float64(len(held)*heldConnections))
	s.figure("broken", float64(broken))
	s.figure("slowest_ms", float64(r.Latency.Max.Microseconds())/1000)
	s.fact("%d open connections, %d broken", len(held)*heldConnections, broken)
	if broken > 0 {
		s.wrong("%d of %d connections broke, want none", broken, len(held)*heldConnections)
	}
	return nil
}

const vanishing = "edge-3"

func (d *demo) killBalancer(ctx context.Context, s *Step) error {
	st := d.stage
	if st.kernel == nil {
		s.fact("left out: the kernel balances nothing")
		return nil
	}
	return d.strikeBalancer(ctx, s, func(t *traffic) error {
		if err := st.Lab.Machine(vanishing).SetBlackhole(true); err != nil {
			return err
		}
		gone, err := t.followed(ctx, s.event, st.without(vanishing)...)
		if err != nil {
			return err
		}
		s.figure("withdrawn_ms", s.ms(gone))
		s.fact("the router removed %s after %.0f ms; the others found the flows of its connections at their backends", vanishing, s.Figures["withdrawn_ms"])
		return d.show(ctx, s, "flows", "--machine", "edge-1", "--frontend", "tcp://"+t.flows[0].address().String(), "--limit", "20000")
	})
}

func (d *demo) reviveBalancer(ctx context.Context, s *Step) error {
	st := d.stage
	if st.kernel == nil {
		s.fact("left out: the kernel balances nothing")
		return d.allIsWell(ctx, s)
	}
	err := d.strikeBalancer(ctx, s, func(t *traffic) error {
		if err := st.Lab.Machine(vanishing).SetBlackhole(false); err != nil {
			return err
		}
		back, err := t.followed(ctx, s.event, st.edgeNames()...)
		if err != nil {
			return err
		}
		s.figure("routed_ms", s.ms(back))
		s.fact("the router spreads connections over %s again after %.1f s", inProse(st.edgeNames()), back.Sub(s.event).Seconds())
		return nil
	})
	return errors.Join(err, d.allIsWell(ctx, s))
}
