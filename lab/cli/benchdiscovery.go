package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"fairlead.dev/lab/bench"
	"fairlead.dev/lab/report"
)

func newBenchDiscovery(dir *string) *cobra.Command {
	var o bench.DiscoveryOptions
	c := &cobra.Command{
		Use:   "discovery",
		Short: "Measure how soon changes in clusters and clouds are followed, and what many of them cost",
		Long: `Measure the discovery of upstreams in three parts.

kubernetes: an endpoint of a cluster with a kube-apiserver becomes ready, terminates or is removed.
Measure from the API's answer to the first request to the endpoint, or to the last, through
Envoy and through a frontend of the data plane at the same time.

scale: one plane follows many clusters: two with a kube-apiserver, the others simulated. Measure
the time until all is in effect and stored, the plane's memory, its processor time and the delay
at a steady rate of changes, writes while endpoints flap, and a restart while no cluster answers.

openstack: one cloud with an Octavia API, and one with thousands of projects.`,
		Example: `  fairlead lab bench discovery --only kubernetes --changes 20
  fairlead lab bench discovery --only scale --upstreams 20 --scale-services 2000 --scale-endpoints 10000`,
		RunE: func(c *cobra.Command, _ []string) error {
			// A plane that is killed refuses connections, and gRPC has a line for each.
			grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
			var err error
			if o.NetworkOptions, err = networkOptions(c); err != nil {
				return err
			}
			return measure(c, *dir, "discovery", func(ctx context.Context) (bench.DiscoveryResult, error) { return bench.Discovery(ctx, o) }, discoveryTable)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.Parts, "only", nil, "measure only this part; may be repeated")
	f.IntVar(&o.Changes, "changes", 100, "kubernetes: number of changes of each kind")
	f.IntVar(&o.Services, "services", 200, "kubernetes: services of the cluster")
	f.IntVar(&o.Upstreams, "upstreams", 160, "scale: number of Upstreams, two of them with a kube-apiserver")
	f.IntVar(&o.ScaleServices, "scale-services", 20_000, "scale: services of all upstreams")
	f.IntVar(&o.ScaleEndpoints, "scale-endpoints", 100_000, "scale: endpoints of all services")
	f.IntVar(&o.Routes, "routes", 1_000, "scale: HTTPRoutes, each to a service of its own")
	f.Float64Var(&o.ChangeRate, "change-rate", 100, "scale: changed endpoints a second")
	f.DurationVar(&o.Duration, "duration", time.Minute, "scale: duration of the changes")
	f.IntVar(&o.LoadBalancers, "load-balancers", 1_000, "openstack: load balancers of the cloud")
	f.IntVar(&o.Members, "members", 4_000, "openstack: their members")
	f.IntVar(&o.MemberChanges, "member-changes", 25, "openstack: how often a member is disabled and enabled, polled and again with notifications")
	f.IntVar(&o.Projects, "projects", 3_900, "openstack: projects of the simulated cloud")
	f.DurationVar(&o.Rest, "rest", 90*time.Second, "openstack: time without changes during which requests are counted")
	must(c.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(bench.DiscoveryParts(), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func discoveryTable(r bench.DiscoveryResult) report.Table {
	t := report.Table{Columns: []string{"part", "figure", "p50", "p99", "most", "value", "goal"}}
	if k := r.Kubernetes; k != nil {
		clusterRows(&t, k)
	}
	if s := r.Scale; s != nil {
		fleetRows(&t, s)
	}
	if o := r.OpenStack; o != nil {
		cloudRows(&t, o)
	}
	return t
}

func clusterRows(t *report.Table, k *bench.DiscoveryCluster) {
	ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
	t.Add("kubernetes", fmt.Sprintf("%d services in effect", k.Services), "", "", "", fmt.Sprintf("%.2f s", k.Synced), "")
	for _, p := range []struct {
		name string
		bench.DiscoveryPath
	}{{"Envoy", k.Envoy}, {"frontend (" + k.DataPlane + ")", k.Frontend}} {
		for _, row := range []struct {
			name string
			bench.Delay
		}{{"ready to first request", p.Ready}, {"terminating to last request", p.Terminating}, {"removed to last request", p.Removed}} {
			t.Add("kubernetes", fmt.Sprintf("%s: %s, %d changes", p.name, row.name, row.N), ms(row.P50), ms(row.P99), ms(row.Max), "", "p99 < 250 ms")
		}
		t.Add("kubernetes", p.name+": failed", "", "", "", fmt.Sprintf("%d of %d", p.Failed, p.Requests), "0")
	}
}

func fleetRows(t *report.Table, r *bench.DiscoveryFleet) {
	add := func(figure, value, goal string) { t.Add("scale", figure, "", "", "", value, goal) }
	s := func(v float64) string { return fmt.Sprintf("%.1f s", v) }
	mb := func(v float64) string { return fmt.Sprintf("%.0f MB", v) }
	add(fmt.Sprintf("%d upstreams, %d services, %d endpoints in effect", r.Upstreams, r.Services, r.Endpoints), s(r.Synced), "")
	add("stored in the plane's API", s(r.Stored), "")
	add("plane's processor time until then", s(r.SyncCPU), "")
	add("plane with API server and etcd", mb(r.PlaneRSS), "")
	add("plane with an outside API", mb(r.ExternalRSS), "")
	for _, l := range []struct {
		name string
		bench.DiscoveryLoad
	}{{"at rest", r.Rest}, {fmt.Sprintf("%.0f changes of endpoints a second", r.Change.Changes), r.Change}, {fmt.Sprintf("endpoints flap, %.0f changes a second", r.Flap.Changes), r.Flap}} {
		add(l.name+": plane's CPU", fmt.Sprintf("%.2f processors", l.CPU), "")
		add(l.name+": etcd writes", fmt.Sprintf("%.1f a second", l.Writes), "")
		if l.Lag.N > 0 {
			t.Add("scale", fmt.Sprintf("%s: change to Envoy, %d changes", l.name, l.Lag.N), fmt.Sprintf("%.0f ms", l.Lag.P50), fmt.Sprintf("%.0f ms", l.Lag.P99), fmt.Sprintf("%.0f ms", l.Lag.Max), "", "p99 < 1 s")
		}
	}
	add("plane killed, clusters down: ready", s(r.Restart.Ready), "")
	add(fmt.Sprintf("a new edge serves all %d routes", r.Routes), s(r.Restart.Served), "")
	add("clusters answer again: all current", s(r.Restart.Current), "")
	add("lists of a kind that a cluster was asked for, at most", fmt.Sprint(r.Restart.Lists), "1")
	add("etcd writes meanwhile", fmt.Sprint(r.Restart.Writes), "")
	add("plane with API server and etcd after its restart", mb(r.PlaneAgain), "")
}

func cloudRows(t *report.Table, r *bench.DiscoveryCloud) {
	ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
	add := func(figure, value, goal string) { t.Add("openstack", figure, "", "", "", value, goal) }
	if o := r.Octavia; o != nil {
		add(fmt.Sprintf("octavia: %d load balancers, %d members in effect", o.LoadBalancers, o.Members), fmt.Sprintf("%.1f s", o.Synced), "")
		for _, w := range []struct {
			name, goal string
			bench.DiscoveryMembers
		}{{"polled", "p99 < 2 s", o.Polled}, {"with notifications", "p99 < 1.5 s", o.Notified}} {
			t.Add("openstack", fmt.Sprintf("octavia, %s: member change to Envoy, %d changes", w.name, w.Both.N), ms(w.Both.P50), ms(w.Both.P99), ms(w.Both.Max), "", w.goal)
			add("octavia, "+w.name+": failed", fmt.Sprintf("%d of %d", w.Failed, w.Requests), "0")
		}
		add("octavia: requests a minute at rest", fmt.Sprintf("%.0f", o.Requests), "< 90")
		t.Add("openstack", fmt.Sprintf("octavia: deleted load balancer gone, %d of them", o.Deleted.N), ms(o.Deleted.P50), "", ms(o.Deleted.Max), "", "< 60 s")
	}
	if p := r.Projects; p != nil {
		add(fmt.Sprintf("%d simulated projects, answers take %.0f ms: all in effect", p.Projects, p.Latency), fmt.Sprintf("%.1f s, %d requests", p.Swept, p.Requests), "")
		add(fmt.Sprintf("the same in Gimbal's way, by %d of the projects", p.GimbalProjects), fmt.Sprintf("%.0f s, %d requests", p.Gimbal, p.GimbalRequests), "")
	}
}
