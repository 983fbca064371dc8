package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/snapshot"
	sourceapi "fairlead.dev/internal/source/api"
	"fairlead.dev/lab"
	"fairlead.dev/lab/backend"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/rig"
)

// DiscoveryCluster is how soon changes of one endpoint of a cluster are followed: by an Envoy, and by a data plane with a
// frontend of the same service.
type DiscoveryCluster struct {
	Services  int            `json:"services"`
	DataPlane string         `json:"data_plane"`
	Envoy     DiscoveryPath  `json:"envoy"`
	Frontend  DiscoveryPath  `json:"frontend"`
	Synced    float64        `json:"synced_s"` // from the creation of the Upstream until all was in effect
	Goal      map[string]any `json:"goal"`
	Met       bool           `json:"met"`
}

// DiscoveryPath is how soon new requests, or connections, follow. All delays begin with the answer of the cluster's API.
type DiscoveryPath struct {
	// Ready is from when an endpoint became ready until it had its first request.
	Ready Delay `json:"ready"`
	// Terminating is from when an endpoint came to be ready=false, serving=true, terminating=true until its last new request;
	// Removed the same of ready endpoints that were deleted.
	Terminating Delay `json:"terminating"`
	Removed     Delay `json:"removed"`
	Requests    int   `json:"requests"`
	Failed      int   `json:"failed"`
}

const (
	discoveryNamespaces = 10
	discoveryEnvoyRate  = 400
	discoveryL4Rate     = 200
	discoveryL4Port     = 9000
	// discoveryQuiet is for how long nobody asks an endpoint that is out of use.
	discoveryQuiet = 400 * time.Millisecond
	// discoveryGoal is that of the p99 of each delay.
	discoveryGoal = 250.0
	// drainedAfter is when a backend that was announced as terminating stops to listen, as a pod does after its preStop hook.
	drainedAfter = time.Second
)

var discoveryVIP = netip.MustParseAddr("10.77.200.16")

// clusterSite is a client, an edge, a plane, a cluster's API and its backends on one segment.
type clusterSite struct {
	*rig.Rig
	o       DiscoveryOptions
	edge    *lab.Machine
	client  *lab.Machine
	pods    *lab.Machine
	plane   *rig.Plane
	api     kube.Client // the plane's
	cluster kube.Client // the upstream's
	result  *DiscoveryCluster
	paths   []*watchedPath
	serving map[int]func() // ends the backend with that index
}

func discoverCluster(ctx context.Context, o DiscoveryOptions) (r *DiscoveryCluster, err error) {
	l, err := lab.Up(ctx, lab.Topology{Name: "bench-discovery", Machines: []lab.MachineSpec{
		{Name: "plane", Role: lab.RolePlane},
		{Name: "edge-1", Role: lab.RoleEdge},
		{Name: "client", Role: lab.RoleClient},
		{Name: "up1-api", Role: lab.RolePlane},
		{Name: "up1", Role: lab.RoleBackends, Addresses: 2},
	}}, o.Lab)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	s := &clusterSite{
		Rig: &rig.Rig{Lab: l, Binary: o.Binary, Kubectl: o.Kubectl, Envoy: o.Envoy, Now: o.Now}, o: o,
		edge: l.Machine("edge-1"), client: l.Machine("client"), pods: l.Machine("up1"),
		result: &DiscoveryCluster{Services: o.Services, Goal: map[string]any{"p99_ms": discoveryGoal, "failed": 0}}, serving: map[int]func(){},
	}
	defer s.stop()
	for _, step := range []func(context.Context) error{s.build, s.follow, s.expose, s.measure} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s.result, nil
}

func (s *clusterSite) stop() {
	for _, end := range s.serving {
		end()
	}
}

func (s *clusterSite) build(ctx context.Context) (err error) {
	s.o.progress("kubernetes: start a plane, an edge and a cluster's API")
	up := s.Lab.Machine("up1-api")
	dir, err := up.Dir("api")
	if err != nil {
		return err
	}
	if _, err := s.StartAPI(ctx, up, dir); err != nil {
		return err
	}
	if s.cluster, err = typedClient(filepath.Join(dir, "admin.kubeconfig"), up); err != nil {
		return err
	}
	if s.plane, err = s.StartPlane(ctx, s.Lab.Machine("plane"), rig.PlaneOptions{}); err != nil {
		return err
	}
	if s.api, err = typedClient(s.plane.Kubeconfig(), s.plane.Machine); err != nil {
		return err
	}
	agent, err := s.StartAgent(ctx, s.edge, s.plane, "--envoy-threads", "1")
	if err != nil {
		return err
	}
	if err := agent.AwaitReady(ctx); err != nil {
		return err
	}
	for i := range s.pods.Addrs4() {
		if err := s.serve(ctx, i); err != nil {
			return err
		}
	}
	return s.fill(ctx)
}

// typedClient is a client of an API whose connections start at a machine.
func typedClient(kubeconfig string, m *lab.Machine) (kube.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Dial, config.QPS = m.Dial, -1
	return sourceapi.NewClient(config)
}

// serve starts the backend with an index.
func (s *clusterSite) serve(ctx context.Context, i int) error {
	l, err := s.pods.Listen(ctx, "tcp4", netip.AddrPortFrom(s.pods.Addrs4()[i], backendPort).String())
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = backend.Serve(running, backend.New(podName(i)), 5*time.Second, l)
	}()
	s.serving[i] = func() { cancel(); <-done }
	return nil
}

func podName(i int) string { return fmt.Sprintf("pod-%d", i) }

func teamNamespace(i int) string { return fmt.Sprintf("team%02d", i%discoveryNamespaces+1) }

// The service that is measured.
const (
	measuredNamespace = "team01"
	measuredService   = "app-0"
	upstreamName      = "up01"
)

// fill writes the services of the cluster.
func (s *clusterSite) fill(ctx context.Context) error {
	s.o.progress("kubernetes: write %d services", s.o.Services)
	for i := range discoveryNamespaces {
		for _, c := range []kube.Client{s.api, s.cluster} {
			if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: teamNamespace(i)}}); err != nil {
				return err
			}
		}
	}
	return inParallel(ctx, 8, s.o.Services, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("app-%d", i)
		addresses := []netip.Addr{netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})}
		if name == measuredService && teamNamespace(i) == measuredNamespace {
			addresses = s.pods.Addrs4()[:1]
		}
		for _, o := range clusterService(teamNamespace(i), name, addresses...) {
			if err := s.cluster.Create(ctx, o); err != nil {
				return err
			}
		}
		return nil
	})
}

// clusterService are the Service and the EndpointSlice of a cluster.
func clusterService(namespace, name string, addresses ...netip.Addr) []kube.Object {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "bench.fairlead.dev",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(backendPort)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, clusterEndpoint(a, true))
	}
	return []kube.Object{&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Ports:     []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(backendPort), Protocol: corev1.ProtocolTCP}},
		},
	}, slice}
}

// clusterEndpoint is one that is ready, or one that is terminating.
func clusterEndpoint(a netip.Addr, ready bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{a.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: new(ready), Serving: new(true), Terminating: new(!ready)},
	}
}

// follow creates the Upstream and waits until it is in effect.
func (s *clusterSite) follow(ctx context.Context) error {
	dir, err := s.Lab.Machine("up1-api").Dir("api")
	if err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	began := s.Now()
	if err := createUpstream(ctx, s.api, upstreamName, kubeconfig, remoteContext); err != nil {
		return err
	}
	if err := s.Await(ctx, "the upstream to be in effect", func(ctx context.Context) error {
		_, waiting, err := current(ctx, s.api, s.o.Services)
		return errors.Join(err, waiting)
	}); err != nil {
		return err
	}
	s.result.Synced = seconds(s.Now().Sub(began))
	return nil
}

// remoteContext is the context of an API's kubeconfig that other machines use.
const remoteContext = "fairlead-remote"

// createUpstream has a cluster followed.
func createUpstream(ctx context.Context, c kube.Client, name string, kubeconfig []byte, kubeContext string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}, Data: map[string][]byte{snapshot.KubeconfigKey: kubeconfig},
	}
	if err := c.Create(ctx, secret); err != nil {
		return fmt.Errorf("create the Secret of %s: %w", name, err)
	}
	u := &v1alpha1.Upstream{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.UpstreamSpec{Kubernetes: &v1alpha1.KubernetesUpstream{Secret: name, Context: kubeContext}},
	}
	if err := c.Create(ctx, u); err != nil {
		return fmt.Errorf("create the Upstream %s: %w", name, err)
	}
	return nil
}

// current counts the Upstreams whose status says that all of them is in effect. waiting says which is not yet.
func current(ctx context.Context, c kube.Client, services int) (n int, waiting, err error) {
	var list v1alpha1.UpstreamList
	if err := c.List(ctx, &list); err != nil {
		return 0, nil, err
	}
	replicated := 0
	for i := range list.Items {
		u := &list.Items[i]
		is := false
		for _, x := range u.Status.Conditions {
			is = is || x.Type == v1alpha1.ConditionCurrent && x.Status == metav1.ConditionTrue
			if x.Type != v1alpha1.ConditionCurrent && x.Status == metav1.ConditionFalse {
				waiting = fmt.Errorf("%s: %s: %s", u.Name, x.Reason, x.Message)
			}
		}
		if replicated += int(u.Status.Replicated.Services); is {
			n++
		} else if waiting == nil {
			waiting = fmt.Errorf("%s is not current", u.Name)
		}
	}
	if waiting == nil && replicated < services {
		waiting = fmt.Errorf("%d of %d services are in effect", replicated, services)
	}
	return n, waiting, nil
}

// expose routes to the measured service, at layer 7 and at layer 4.
func (s *clusterSite) expose(ctx context.Context) error {
	manifest := rig.PoolManifest("public", []string{discoveryVIP.String() + "/32"}, "announce: L2") + "---\n" + gatewayClass + fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: %[1]s}
spec:
  gatewayClassName: fairlead
  listeners:
  - {name: http, port: %[2]d, protocol: HTTP}
  - {name: direct, port: %[3]d, protocol: TCP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: %[1]s}
spec:
  parentRefs: [{name: edge, sectionName: http}]
  hostnames: [%[4]q]
  rules: [{backendRefs: [{name: %[5]s, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: app, namespace: %[1]s}
spec:
  parentRefs: [{name: edge, sectionName: direct}]
  rules: [{backendRefs: [{name: %[5]s, port: 80}]}]
`, measuredNamespace, vipPort, discoveryL4Port, vipHost, upstreamName+"-"+measuredService)
	if _, err := s.plane.Apply(ctx, manifest); err != nil {
		return err
	}
	key := v1.FrontendKey{VIP: discoveryVIP, Transport: v1.TCP, Port: discoveryL4Port}
	if err := s.Await(ctx, key.String()+" to be balanced", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, f := range status.Frontends {
			for _, at := range f.At {
				if f.FrontendKey != key {
					continue
				}
				if at.State == v1.FrontendBalanced {
					s.result.DataPlane = fmt.Sprintf("%s, %s", at.DataPlane, at.Mode)
					return nil
				}
				err = fmt.Errorf("%s: %s", at.State, at.Message)
			}
		}
		return errors.Join(errors.New("no machine balances it"), err)
	}); err != nil {
		return err
	}
	s.paths = []*watchedPath{
		{name: "envoy", result: &s.result.Envoy, config: load.Config{Address: netip.AddrPortFrom(discoveryVIP, vipPort).String(), Rate: discoveryEnvoyRate, Concurrency: 32}},
		{name: "frontend", result: &s.result.Frontend, config: load.Config{
			Address: netip.AddrPortFrom(discoveryVIP, discoveryL4Port).String(), Rate: discoveryL4Rate, Concurrency: 64, NewConnections: true,
		}},
	}
	for _, p := range s.paths {
		p.config.Host, p.config.Dial, p.config.Now, p.changing = vipHost, s.client.Dial, s.Now, podName(changingPod)
		one := p.config
		one.Requests, one.Concurrency = 1, 1
		if err := s.Await(ctx, "an answer by the "+p.name, func(ctx context.Context) error {
			report, err := load.Do(ctx, one)
			if err == nil && report.Failed > 0 {
				err = errors.New("a request failed")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// watchedPath is requests by one way, and when the changing backend answered them.
type watchedPath struct {
	name     string
	config   load.Config
	changing string // name of the backend
	result   *DiscoveryPath

	ready, terminating, removed []time.Duration

	mu          sync.Mutex
	first, last time.Time // answers of the changing backend
}

const changingPod = 1

func (p *watchedPath) note(r load.Result) {
	if r.Name != p.changing {
		return
	}
	at := r.Start.Add(r.Latency)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first.IsZero() {
		p.first = at
	}
	if at.After(p.last) {
		p.last = at
	}
}

func (p *watchedPath) arm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first, p.last = time.Time{}, time.Time{}
}

func (p *watchedPath) seen() (first, last time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first, p.last
}

// measure changes the endpoint again and again.
func (s *clusterSite) measure(ctx context.Context) error {
	s.o.progress("kubernetes: %d endpoints become ready, terminating and removed; %s", 2*s.o.Changes, s.result.DataPlane)
	var runs []*load.Run
	for _, p := range s.paths {
		p.config.OnResult = p.note
		run, err := load.Start(ctx, p.config)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	for i := range 2 * s.o.Changes {
		if err := s.round(ctx, i%2 == 0); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		if (i+1)%50 == 0 {
			s.o.progress("kubernetes: %d of %d", i+1, 2*s.o.Changes)
		}
	}
	s.result.Met = true
	for i, p := range s.paths {
		report := runs[i].Stop()
		p.result.Ready, p.result.Terminating, p.result.Removed = delayOf(p.ready), delayOf(p.terminating), delayOf(p.removed)
		p.result.Requests, p.result.Failed = report.OK+report.Failed, report.Failed
		s.result.Met = s.result.Met && p.result.Failed == 0 && max(p.result.Ready.P99, p.result.Terminating.P99, p.result.Removed.P99) < discoveryGoal
	}
	return nil
}

// round has the endpoint become ready, and go again: by termination or at once.
func (s *clusterSite) round(ctx context.Context, terminates bool) error {
	if s.serving[changingPod] == nil {
		if err := s.serve(ctx, changingPod); err != nil {
			return err
		}
	}
	for _, p := range s.paths {
		p.arm()
	}
	fixed := clusterEndpoint(s.pods.Addrs4()[0], true)
	changing := s.pods.Addrs4()[changingPod]
	answered, err := s.set(ctx, fixed, clusterEndpoint(changing, true))
	if err != nil {
		return err
	}
	for _, p := range s.paths {
		took, err := p.awaitFirst(ctx, answered)
		if err != nil {
			return err
		}
		p.ready = append(p.ready, took)
	}
	if err := pauseFor(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	if !terminates {
		gone, err := s.set(ctx, fixed)
		if err != nil {
			return err
		}
		for _, p := range s.paths {
			took, err := p.awaitQuiet(ctx, gone, discoveryQuiet)
			if err != nil {
				return err
			}
			p.removed = append(p.removed, took)
		}
		return nil
	}
	terminating, err := s.set(ctx, fixed, clusterEndpoint(changing, false))
	if err != nil {
		return err
	}
	for _, p := range s.paths {
		took, err := p.awaitQuiet(ctx, terminating, discoveryQuiet)
		if err != nil {
			return err
		}
		p.terminating = append(p.terminating, took)
	}
	if err := pauseFor(ctx, drainedAfter-s.Now().Sub(terminating)); err != nil {
		return err
	}
	s.serving[changingPod]()
	delete(s.serving, changingPod)
	_, err = s.set(ctx, fixed)
	return err
}

// set writes the endpoints of the measured service. It returns when the cluster's API had answered.
func (s *clusterSite) set(ctx context.Context, endpoints ...discoveryv1.Endpoint) (time.Time, error) {
	var slice discoveryv1.EndpointSlice
	if err := s.cluster.Get(ctx, kube.ObjectKey{Namespace: measuredNamespace, Name: measuredService + "-1"}, &slice); err != nil {
		return time.Time{}, err
	}
	slice.Endpoints = endpoints
	err := s.cluster.Update(ctx, &slice)
	return s.Now(), err
}

// await waits until it is so.
func (p *watchedPath) await(ctx context.Context, what string, is func(first, last time.Time) bool) error {
	for limit := p.config.Now().Add(30 * time.Second); ; {
		first, last := p.seen()
		switch {
		case is(first, last):
			return nil
		case p.config.Now().After(limit):
			return fmt.Errorf("%s: wait for the endpoint %s: not within 30 s", p.name, what)
		}
		if err := pauseFor(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// awaitFirst waits until the endpoint is asked, and returns how long after a time that was.
func (p *watchedPath) awaitFirst(ctx context.Context, since time.Time) (time.Duration, error) {
	err := p.await(ctx, "to get requests", func(first, _ time.Time) bool { return !first.IsZero() })
	first, _ := p.seen()
	return max(0, first.Sub(since)), err
}

// awaitQuiet waits until nobody has asked the endpoint for some time, and returns how long it was asked after a time.
func (p *watchedPath) awaitQuiet(ctx context.Context, since time.Time, quiet time.Duration) (time.Duration, error) {
	err := p.await(ctx, "to get none", func(_, last time.Time) bool {
		now := p.config.Now()
		return now.Sub(last) >= quiet && now.Sub(since) >= quiet
	})
	_, last := p.seen()
	return max(0, last.Sub(since)), err
}
