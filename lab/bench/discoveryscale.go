package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/kubesim"
	"fairlead.dev/lab/pki"
	"fairlead.dev/lab/rig"
)

// DiscoveryFleet is what one plane takes that follows very many clusters.
type DiscoveryFleet struct {
	Upstreams int `json:"upstreams"`
	Full      int `json:"with_kube_apiserver"`
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
	Routes    int `json:"routes"`
	// Synced is from the creation of the first Upstream until all were in effect, Stored until all was stored in the plane's
	// API; SyncCPU is the plane's processor time until then.
	Synced  float64 `json:"synced_s"`
	Stored  float64 `json:"stored_s"`
	SyncCPU float64 `json:"sync_cpu_s"`
	// Resident memory of the plane: right after everything was stored, after its restart, and of one on another process's API.
	PlaneRSS    float64 `json:"plane_rss_mb"`
	PlaneAgain  float64 `json:"plane_again_rss_mb"`
	ExternalRSS float64 `json:"plane_external_rss_mb"`
	// Rest is the plane without changes, Change at ChangeRate changes of endpoints a second in clusters chosen at random, Flap
	// while some endpoints change many times a second.
	Rest    DiscoveryLoad    `json:"rest"`
	Change  DiscoveryLoad    `json:"change"`
	Flap    DiscoveryLoad    `json:"flap"`
	Restart DiscoveryRestart `json:"restart"`
	Goal    string           `json:"goal"`
	Met     bool             `json:"met"`
}

// DiscoveryLoad is the plane during a time.
type DiscoveryLoad struct {
	// Changes a second that were made, and what the plane used for a second of them.
	Changes float64 `json:"changes_per_s"`
	CPU     float64 `json:"plane_cpu_per_s"`
	// Writes a second are all of the plane's etcd, its Lease included.
	Writes float64 `json:"etcd_writes_per_s"`
	// Lag is from the answer of a cluster until Envoy asked the other backend.
	Lag Delay `json:"lag"`
}

// DiscoveryRestart is a plane that is killed and started again while no simulated cluster answers.
type DiscoveryRestart struct {
	// Ready is from the start of the process until it was ready; Served until an edge that had joined after that served all routes.
	Ready  float64 `json:"ready_s"`
	Served float64 `json:"served_s"`
	// Current is from when the clusters answered again until all statuses said so.
	Current float64 `json:"current_s"`
	// Lists are the most lists of one kind that a cluster was asked for, and Writes what was written meanwhile.
	Lists  int `json:"lists_of_a_kind"`
	Writes int `json:"etcd_writes"`
}

const (
	realClusters = 2
	fleetToken   = "bench"
	fleetPort    = 8443
	flapping     = 50 // endpoints
	flapRate     = 20 // changes of each a second
	flapTime     = 20 * time.Second
	restTime     = 15 * time.Second
	fleetLagGoal = 1000.0 // ms
	fleetLimit   = 15 * time.Minute
	probePause   = 250 * time.Millisecond
)

// discoveredService is a service of a cluster.
type discoveredService struct {
	cluster         int
	namespace, name string
	addresses       []netip.Addr
	turn            int
}

type fleetBench struct {
	*routesBench
	o        DiscoveryOptions
	result   *DiscoveryFleet
	typed    kube.Client // of the plane's API
	real     []kube.Client
	configs  [][]byte // kubeconfigs of the real ones
	sims     []*kubesim.Cluster
	services []*discoveredService // those with routes first
	close    []func()
	next     uint32 // address that no endpoint had
}

func discoverFleet(ctx context.Context, o DiscoveryOptions) (r *DiscoveryFleet, err error) {
	l, err := lab.Up(ctx, lab.Topology{Name: "bench-clusters", Machines: []lab.MachineSpec{
		{Name: "plane", Role: lab.RolePlane},
		{Name: "edge-1", Role: lab.RoleEdge},
		{Name: "edge-2", Role: lab.RoleEdge},
		{Name: "clouds", Role: lab.RolePlane},
		{Name: "up001-api", Role: lab.RolePlane},
		{Name: "up002-api", Role: lab.RolePlane},
		{Name: "os1", Role: lab.RoleBackends, Addresses: 2},
	}}, o.Lab)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	b := &fleetBench{o: o, result: &DiscoveryFleet{
		Upstreams: o.Upstreams, Full: realClusters, Services: o.ScaleServices, Routes: o.Routes,
		Goal: "lag p99 < 1 s; at most one list of a kind after a restart",
	}}
	b.routesBench = newRoutesBench(RoutesOptions{NetworkOptions: o.NetworkOptions}, l, o.Routes)
	defer func() {
		for _, f := range b.close {
			f()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*fleetLimit)
	defer cancel()
	for _, step := range []func(context.Context) error{b.begin, b.fill, b.sync, b.route, b.loads, b.restart, b.outside} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r = b.result
	r.Met = r.Change.Lag.P99 < fleetLagGoal && r.Flap.Lag.P99 < fleetLagGoal && r.Restart.Lists <= 1
	return r, nil
}

// begin starts the plane, an edge, backends and the APIs of all clusters.
func (b *fleetBench) begin(ctx context.Context) (err error) {
	b.progress("scale: start a plane, an edge and %d clusters", b.o.Upstreams)
	if _, err := b.StartBackends(ctx, b.backends, b.backends.Addrs4(), backendPort); err != nil {
		return err
	}
	if b.plane, err = b.StartPlane(ctx, b.machine, rig.PlaneOptions{}); err != nil {
		return err
	}
	if b.api, err = client(b.plane); err != nil {
		return err
	}
	if b.typed, err = typedClient(b.plane.Kubeconfig(), b.machine); err != nil {
		return err
	}
	if b.agent, err = b.StartAgent(ctx, b.edge, b.plane, "--envoy-threads", "1"); err != nil {
		return err
	}
	if err := b.agent.AwaitReady(ctx); err != nil {
		return err
	}
	for i := range realClusters {
		m := b.Lab.Machine(clusterName(i) + "-api")
		dir, err := m.Dir("api")
		if err != nil {
			return err
		}
		if _, err := b.StartAPI(ctx, m, dir); err != nil {
			return err
		}
		path := filepath.Join(dir, "admin.kubeconfig")
		c, err := typedClient(path, m)
		if err != nil {
			return err
		}
		kubeconfig, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b.real, b.configs = append(b.real, c), append(b.configs, kubeconfig)
	}
	for i := realClusters; i < b.o.Upstreams; i++ {
		b.sims = append(b.sims, kubesim.New(clusterName(i), fleetToken))
	}
	return b.serveSims(ctx)
}

func clusterName(i int) string { return fmt.Sprintf("up%03d", i+1) }

// serveSims runs the APIs of the simulated clusters, in this process.
func (b *fleetBench) serveSims(ctx context.Context) error {
	m := b.Lab.Machine("clouds")
	dir, err := m.Dir("pki")
	if err != nil {
		return err
	}
	authority, err := pki.New(dir)
	if err != nil {
		return err
	}
	crt, key, err := authority.Issue("clouds", pkix.Name{CommonName: "clouds"}, []net.IP{m.Addr4().AsSlice()})
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(authority.Path("ca.crt"))
	if err != nil {
		return err
	}
	address := netip.AddrPortFrom(m.Addr4(), fleetPort)
	l, err := m.Listen(ctx, "tcp4", address.String())
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: kubesim.Handler(b.sims...), ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	b.close = append(b.close, func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(l, "", "") }()
	for _, c := range b.sims {
		b.configs = append(b.configs, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "https://%s/%s", certificate-authority-data: %s}}]
users: [{name: user, user: {token: %s}}]
contexts: [{name: %s, context: {cluster: cluster, user: user}}]
`, address, c.Name(), base64.StdEncoding.EncodeToString(ca), fleetToken, remoteContext))
	}
	return nil
}

// fill gives the clusters their services: those with routes have one of the backends, the others addresses of nobody.
func (b *fleetBench) fill(ctx context.Context) error {
	b.progress("scale: %d services", b.o.ScaleServices)
	for i := range discoveryNamespaces {
		for _, c := range append([]kube.Client{b.typed}, b.real...) {
			if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: teamNamespace(i)}}); err != nil {
				return err
			}
		}
	}
	routed := min(b.o.Routes, b.o.ScaleServices)
	each := max(1, (b.o.ScaleEndpoints-routed)/max(1, b.o.ScaleServices-routed))
	more := max(0, b.o.ScaleEndpoints-routed-each*(b.o.ScaleServices-routed))
	for i := range b.o.ScaleServices {
		j := i / b.o.Upstreams
		s := &discoveredService{cluster: i % b.o.Upstreams, namespace: teamNamespace(j), name: fmt.Sprintf("app-%d", j)}
		if i < routed {
			s.addresses = b.backends.Addrs4()[:1]
		} else {
			n := each
			if i-routed < more {
				n++
			}
			for range n {
				s.addresses = append(s.addresses, b.address())
			}
		}
		b.services = append(b.services, s)
		b.result.Endpoints += len(s.addresses)
	}
	return inParallel(ctx, 8, len(b.services), func(ctx context.Context, i int) error {
		s := b.services[i]
		for _, o := range clusterService(s.namespace, s.name, s.addresses...) {
			if err := b.put(ctx, s.cluster, o); err != nil {
				return err
			}
		}
		return nil
	})
}

// address is one that no endpoint had.
func (b *fleetBench) address() netip.Addr {
	b.next++
	return netip.AddrFrom4([4]byte{100, 64 + byte(b.next>>16), byte(b.next >> 8), byte(b.next)})
}

// put writes an object of a cluster.
func (b *fleetBench) put(ctx context.Context, cluster int, o kube.Object) error {
	if cluster >= realClusters {
		object, is := o.(kubesim.Object)
		if !is {
			return fmt.Errorf("no cluster has a %T", o)
		}
		return b.sims[cluster-realClusters].Put(object)
	}
	err := b.real[cluster].Create(ctx, o)
	if kube.IgnoreAlreadyExists(err) == nil && err != nil {
		live, is := o.DeepCopyObject().(kube.Object)
		if !is {
			return err
		}
		if err := b.real[cluster].Get(ctx, kube.ObjectKeyFromObject(o), live); err != nil {
			return err
		}
		o.SetResourceVersion(live.GetResourceVersion())
		return b.real[cluster].Update(ctx, o)
	}
	return err
}

// sync creates the Upstreams and waits until all is in effect, and stored.
func (b *fleetBench) sync(ctx context.Context) error {
	b.progress("scale: create %d Upstreams", b.o.Upstreams)
	pid := b.plane.Process.Pid().ID
	used, err := processorTime(pid)
	if err != nil {
		return err
	}
	began := b.Now()
	if err := inParallel(ctx, 8, b.o.Upstreams, func(ctx context.Context, i int) error {
		return createUpstream(ctx, b.typed, clusterName(i), b.configs[i], remoteContext)
	}); err != nil {
		return err
	}
	if err := b.awaitCurrent(ctx); err != nil {
		return err
	}
	b.result.Synced = seconds(b.Now().Sub(began))
	b.progress("scale: all in effect after %.1f s; wait until all is stored", b.result.Synced)
	if err := b.awaitStored(ctx); err != nil {
		return err
	}
	b.result.Stored = seconds(b.Now().Sub(began))
	now, err := processorTime(pid)
	if err != nil {
		return err
	}
	b.result.SyncCPU = seconds(now - used)
	b.progress("scale: all stored after %.1f s; memory", b.result.Stored)
	b.result.PlaneRSS, err = settled(ctx, b.Now, pid)
	return err
}

// awaitCurrent waits until all Upstreams say that what is in effect is what they have.
func (b *fleetBench) awaitCurrent(ctx context.Context) error {
	return pollFor(ctx, 100*time.Millisecond, func() (bool, error) {
		n, waiting, err := current(ctx, b.typed, len(b.services))
		if err != nil {
			return false, err
		}
		return n == b.o.Upstreams && waiting == nil, waiting
	})
}

// awaitStored waits until the plane's API has all services and their EndpointSlices. It looks when few writes come.
func (b *fleetBench) awaitStored(ctx context.Context) error {
	last, at := uint64(0), b.Now()
	return pollFor(ctx, 2*time.Second, func() (bool, error) {
		rv, err := b.revision(ctx)
		if err != nil {
			return false, err
		}
		now := b.Now()
		rate := float64(rv-last) / now.Sub(at).Seconds()
		if last, at = rv, now; rate > 50 {
			return false, fmt.Errorf("%.0f writes a second", rate)
		}
		for _, kind := range []string{"Service", "EndpointSlice"} {
			list := &metav1.PartialObjectMetadataList{}
			gvk := corev1.SchemeGroupVersion.WithKind(kind + "List")
			if kind == "EndpointSlice" {
				gvk = discoveryv1.SchemeGroupVersion.WithKind(kind + "List")
			}
			list.SetGroupVersionKind(gvk)
			if err := b.typed.List(ctx, list, kube.HasLabels{v1alpha1.LabelUpstream}); err != nil {
				return false, err
			}
			if len(list.Items) < len(b.services) {
				return false, fmt.Errorf("%d of %d objects of kind %s are stored", len(list.Items), len(b.services), kind)
			}
		}
		return true, nil
	})
}

// revision is etcd's: it grows by one with each write.
func (b *fleetBench) revision(ctx context.Context) (uint64, error) {
	var list corev1.NamespaceList
	if err := b.typed.List(ctx, &list, kube.Limit(1)); err != nil {
		return 0, err
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}

// pollFor asks until it is so. The error of a question that is answered with no says what is waited for.
func pollFor(ctx context.Context, pause time.Duration, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, fleetLimit)
	defer cancel()
	for {
		ok, err := is()
		if ok {
			return nil
		}
		if e := pauseFor(ctx, pause); e != nil {
			return errors.Join(e, err)
		}
	}
}

// route routes to the first services and waits until all routes are served.
func (b *fleetBench) route(ctx context.Context) error {
	b.progress("scale: %d routes", b.o.Routes)
	gateway := `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  gatewayClassName: fairlead
  listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
`
	if _, err := b.plane.Apply(ctx, gatewayClass+"---\n"+gateway); err != nil {
		return err
	}
	if err := inParallel(ctx, routeWriters, b.o.Routes, func(ctx context.Context, i int) error {
		s := b.services[i]
		o := routeObject(i)
		o.SetNamespace(s.namespace)
		o.Object["spec"] = map[string]any{
			"parentRefs": []any{map[string]any{"name": "edge", "namespace": "default"}},
			"hostnames":  []any{routeHost(i)},
			"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": clusterName(s.cluster) + "-" + s.name, "port": int64(80)}}}},
		}
		_, err := b.api.Resource(httpRoutes).Namespace(s.namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("write a route: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	if err := inParallel(limited, sweepers, b.o.Routes, b.awaitServed()); err != nil {
		return fmt.Errorf("wait for every host to be served: %w", err)
	}
	// Statuses are written at a bounded rate, and rest begins after them.
	return b.awaitRest(ctx)
}

// awaitRest waits until the plane writes next to nothing.
func (b *fleetBench) awaitRest(ctx context.Context) error {
	last, at, calm := uint64(0), b.Now(), 0
	return pollFor(ctx, time.Second, func() (bool, error) {
		rv, err := b.revision(ctx)
		if err != nil {
			return false, err
		}
		now := b.Now()
		if float64(rv-last)/now.Sub(at).Seconds() < 5 {
			calm++
		} else {
			calm = 0
		}
		last, at = rv, now
		return calm >= 3, errors.New("the plane writes still")
	})
}

// loads measures the plane at rest, with changes, and with endpoints that flap.
func (b *fleetBench) loads(ctx context.Context) (err error) {
	idle := func(context.Context, int) error { return nil }
	b.progress("scale: at rest for %s", restTime)
	if b.result.Rest, err = b.during(ctx, restTime, 0, false, idle); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a reproducible choice
	unrouted := b.services[min(b.o.Routes, len(b.services)):]
	if len(unrouted) == 0 {
		return errors.New("all services have routes: nothing is left to change")
	}
	b.progress("scale: %.0f changes of endpoints a second for %s", b.o.ChangeRate, b.o.Duration)
	if b.result.Change, err = b.during(ctx, b.o.Duration, b.o.ChangeRate, true, func(ctx context.Context, _ int) error {
		s := unrouted[random.IntN(len(unrouted))]
		s.addresses[random.IntN(len(s.addresses))] = b.address()
		return b.put(ctx, s.cluster, clusterService(s.namespace, s.name, s.addresses...)[1])
	}); err != nil {
		return err
	}
	n := min(flapping, len(unrouted))
	b.progress("scale: %d endpoints flap %d times a second for %s", n, flapRate, flapTime)
	b.result.Flap, err = b.during(ctx, flapTime, float64(n*flapRate), true, func(ctx context.Context, i int) error {
		s := unrouted[(len(unrouted)/n)*(i%n)]
		if s.cluster < realClusters { // their APIs would be measured
			s = unrouted[(len(unrouted)/n)*(i%n)+realClusters]
		}
		slice, is := clusterService(s.namespace, s.name, s.addresses...)[1].(*discoveryv1.EndpointSlice)
		if s.turn++; is && s.turn%2 == 1 {
			slice.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}
		}
		return b.put(ctx, s.cluster, slice)
	})
	return err
}

// during measures the plane while changes are made, one after the other, at a rate.
func (b *fleetBench) during(ctx context.Context, d time.Duration, rate float64, probed bool, change func(context.Context, int) error) (r DiscoveryLoad, err error) {
	pid := b.plane.Process.Pid().ID
	used, err := processorTime(pid)
	if err != nil {
		return r, err
	}
	revision, err := b.revision(ctx)
	if err != nil {
		return r, err
	}
	began := b.Now()
	type probes struct {
		took []time.Duration
		err  error
	}
	probing := make(chan probes, 1)
	go func() {
		var p probes
		if probed {
			p.took, p.err = b.probe(ctx, began.Add(d))
		}
		probing <- p
	}()
	made := 0
	for ; b.Now().Sub(began) < d; made++ {
		if rate == 0 {
			err = pauseFor(ctx, d)
			break
		}
		if err = pauseFor(ctx, began.Add(time.Duration(float64(made)/rate*float64(time.Second))).Sub(b.Now())); err != nil {
			break
		}
		if err = change(ctx, made); err != nil {
			break
		}
	}
	took := b.Now().Sub(began).Seconds()
	now, e := processorTime(pid)
	err = errors.Join(err, e)
	after, e := b.revision(ctx)
	p := <-probing
	if err = errors.Join(err, e, p.err); err != nil {
		return r, err
	}
	return DiscoveryLoad{
		Changes: math.Round(float64(made) / took), CPU: math.Round((now-used).Seconds()/took*100) / 100,
		Writes: math.Round(float64(after-revision)/took*10) / 10, Lag: delayOf(p.took),
	}, nil
}

// probe switches services with routes between the two backends, again and again, and has how soon Envoy followed.
func (b *fleetBench) probe(ctx context.Context, until time.Time) (took []time.Duration, err error) {
	c, pods := b.asker(), b.backends.Addrs4()
	for i := 0; b.Now().Before(until); i = (i + 7) % b.o.Routes {
		s := b.services[i]
		if s.cluster < realClusters {
			continue
		}
		began := b.Now()
		s.turn++
		s.addresses = pods[s.turn%2 : s.turn%2+1]
		if err := b.put(ctx, s.cluster, clusterService(s.namespace, s.name, s.addresses...)[1]); err != nil {
			return nil, err
		}
		changed := b.Now()
		for {
			_, by, err := b.ask(ctx, c, routeHost(i))
			now := b.Now()
			if by == backendName(s.turn%2) {
				took = append(took, now.Sub(changed))
				break
			}
			if now.Sub(changed) > 30*time.Second {
				return nil, fmt.Errorf("a change of %s in %s is not served after 30 s: %q, %w", s.name, clusterName(s.cluster), by, err)
			}
			if err := pauseFor(ctx, time.Millisecond); err != nil {
				return nil, err
			}
		}
		if err := pauseFor(ctx, probePause-b.Now().Sub(began)); err != nil {
			return nil, err
		}
	}
	return took, nil
}
