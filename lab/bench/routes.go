package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/rig"
)

// RoutesOptions say what is measured.
type RoutesOptions struct {
	NetworkOptions
	// Sizes are the numbers of routes, each a row; default 100, 1,000, 5,000 and 20,000.
	Sizes []int
	// Changes of one route, idle and again under load; default 100.
	Changes int
	// Rate of the load in requests a second; default 1,000.
	Rate float64
	// ListenerSets is how many routes attach to one Gateway through ListenerSets; 0 leaves
	// that out.
	ListenerSets int
	// Churn is how many routes come and go at ChurnRate a second (default 50); 0 leaves that out.
	Churn     int
	ChurnRate float64
}

// RoutesResult has a row for each number of routes.
type RoutesResult struct {
	Changes int         `json:"changes"`
	Rate    float64     `json:"load_requests_per_s"`
	Rows    []RoutesRow `json:"rows"`
	// ListenerSets is nil when it was left out.
	ListenerSets *ListenerSetsResult `json:"listener_sets,omitempty"`
	// Churn is nil when it was left out.
	Churn *ChurnResult `json:"churn,omitempty"`
}

// RoutesRow is what so many HTTPRoutes cost, each of a host of its own.
type RoutesRow struct {
	Routes int `json:"routes"`
	// APIWrite is how long it took to create all of them, with writers in parallel;
	// Programmed the time from the last answer of the API until every host was served.
	APIWrite   float64 `json:"api_write_s"`
	Programmed float64 `json:"programmed_s"`
	// Status is the time from then until every route's status said so.
	Status float64 `json:"status_s"`
	// Resident memory with all of them: of a plane with its API server and etcd, of a plane
	// that leads on another process's API, of the agent and of its Envoy.
	PlaneRSS    float64 `json:"plane_rss_mb"`
	ExternalRSS float64 `json:"plane_external_rss_mb"`
	AgentRSS    float64 `json:"agent_rss_mb"`
	EnvoyRSS    float64 `json:"envoy_rss_mb"`
	// From the API's answer to a change of one route until the first request that followed it.
	ChangeP50       float64 `json:"change_p50_ms"`
	ChangeP99       float64 `json:"change_p99_ms"`
	ChangeMax       float64 `json:"change_max_ms"`
	ChangeLoadedP50 float64 `json:"change_loaded_p50_ms"`
	ChangeLoadedP99 float64 `json:"change_loaded_p99_ms"`
	ChangeLoadedMax float64 `json:"change_loaded_max_ms"`
	// LoadRate is what the load reached, LoadP99 its latency meanwhile.
	LoadRate float64 `json:"load_reached_per_s"`
	LoadP99  float64 `json:"load_p99_ms"`
	// Errors are requests that failed while routes were changed, idle and under load.
	Errors int `json:"errors"`
}

const (
	routeWriters = 16
	// sweepers ask for the hosts that were not served yet.
	sweepers     = 4
	programLimit = 3 * time.Minute
	statusLimit  = 10 * time.Minute
)

var httpRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}

// Routes measures rows in labs of their own.
func Routes(ctx context.Context, o RoutesOptions) (RoutesResult, error) {
	if len(o.Sizes) == 0 {
		o.Sizes = []int{100, 1_000, 5_000, 20_000}
	}
	o.Changes = orDefault(o.Changes, 100)
	if o.Rate == 0 {
		o.Rate = 1_000
	}
	r := RoutesResult{Changes: o.Changes, Rate: o.Rate}
	for _, n := range o.Sizes {
		row, err := measureRoutes(ctx, o, n)
		if err != nil {
			return r, fmt.Errorf("%d routes: %w", n, err)
		}
		r.Rows = append(r.Rows, row)
	}
	if o.Churn > 0 {
		if o.ChurnRate == 0 {
			o.ChurnRate = 50
		}
		churn, err := measureChurn(ctx, o, o.Churn)
		if err != nil {
			return r, fmt.Errorf("%d routes that come and go: %w", o.Churn, err)
		}
		r.Churn = &churn
	}
	if o.ListenerSets > 0 {
		sets, err := measureListenerSets(ctx, o, o.ListenerSets)
		if err != nil {
			return r, fmt.Errorf("%d routes with ListenerSets: %w", o.ListenerSets, err)
		}
		r.ListenerSets = &sets
	}
	return r, nil
}

// routesBench is one edge between a client and two services.
type routesBench struct {
	RoutesOptions
	*rig.Rig
	plane *rig.Plane
	agent *rig.Agent
	// machine of the plane, edge and backends.
	machine, edge, backends *lab.Machine
	api                     dynamic.Interface
	row                     RoutesRow
}

func measureRoutes(ctx context.Context, o RoutesOptions, n int) (row RoutesRow, err error) {
	l, err := lab.Up(ctx, routesTopology(), o.Lab)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	b := newRoutesBench(o, l, n)
	for _, step := range []func(context.Context) error{b.build, b.write, b.awaitStatus, b.memory, b.changes, b.external} {
		if err := step(ctx); err != nil {
			return row, err
		}
	}
	return b.row, nil
}

func routesTopology() lab.Topology {
	return lab.Topology{Name: "bench-routes", Machines: []lab.MachineSpec{
		{Name: "plane", Role: lab.RolePlane}, {Name: "edge-1", Role: lab.RoleEdge}, {Name: "os1", Role: lab.RoleBackends, Addresses: 2},
	}}
}

func newRoutesBench(o RoutesOptions, l *lab.Lab, n int) *routesBench {
	return &routesBench{
		RoutesOptions: o, row: RoutesRow{Routes: n}, machine: l.Machine("plane"), edge: l.Machine("edge-1"), backends: l.Machine("os1"),
		Rig: &rig.Rig{Lab: l, Binary: o.Binary, Kubectl: o.Kubectl, Envoy: o.Envoy, Now: o.Now},
	}
}

func (b *routesBench) build(ctx context.Context) (err error) {
	b.progress("%d routes: start", b.row.Routes)
	os1 := b.backends
	if _, err := b.StartBackends(ctx, os1, os1.Addrs4(), backendPort); err != nil {
		return err
	}
	if b.plane, err = b.StartPlane(ctx, b.machine, rig.PlaneOptions{}); err != nil {
		return err
	}
	if b.api, err = client(b.plane); err != nil {
		return err
	}
	if b.agent, err = b.StartAgent(ctx, b.edge, b.plane, "--envoy-threads", "1"); err != nil {
		return err
	}
	if err := b.agent.AwaitReady(ctx); err != nil {
		return err
	}
	manifest := gatewayClass + "---\n" + gatewayManifest("edge")
	for i, a := range os1.Addrs4() {
		manifest += "---\n" + serviceManifest(appName(i), a)
	}
	_, err = b.plane.Apply(ctx, manifest)
	return err
}

// client is a client of a plane's API, whose connections start at the plane.
func client(p *rig.Plane) (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.Dial, config.QPS = p.Machine.Dial, -1
	return dynamic.NewForConfig(config)
}

// appName of the backend with an index; it answers with backendName.
func appName(i int) string     { return "app-" + strconv.Itoa(i) }
func backendName(i int) string { return "os1-" + string(rune('a'+i)) }

func routeName(i int) string { return "route-" + strconv.Itoa(i) }
func routeHost(i int) string { return fmt.Sprintf("app-%d.team-%d.example.com", i, i%97) }

// write creates all routes and waits until each of their hosts is served.
func (b *routesBench) write(ctx context.Context) error {
	n := b.row.Routes
	b.progress("%d routes: write", n)
	began := b.Now()
	if err := inParallel(ctx, routeWriters, n, func(ctx context.Context, i int) error {
		_, err := b.api.Resource(httpRoutes).Namespace("default").Create(ctx, routeObject(i), metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("write a route: %w", err)
	}
	wrote := b.Now()
	b.row.APIWrite = seconds(wrote.Sub(began))
	b.progress("%d routes: written in %.1f s; wait until all are served", n, b.row.APIWrite)
	limited, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	if err := inParallel(limited, sweepers, n, b.awaitServed()); err != nil {
		return fmt.Errorf("wait for every host to be served: %w", err)
	}
	b.row.Programmed = seconds(b.Now().Sub(wrote))
	return nil
}

// awaitStatus waits until every route says that it is programmed. The plane writes
// statuses at a bounded rate, and changes are measured when it has done so.
func (b *routesBench) awaitStatus(ctx context.Context) error {
	b.progress("%d routes: wait for their statuses", b.row.Routes)
	began := b.Now()
	limited, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	for {
		list, err := b.api.Resource(httpRoutes).Namespace("default").List(limited, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		waiting := 0
		for i := range list.Items {
			if !programmed(list.Items[i].Object) {
				waiting++
			}
		}
		if waiting == 0 && len(list.Items) == b.row.Routes {
			b.row.Status = seconds(b.Now().Sub(began))
			return nil
		}
		select {
		case <-limited.Done():
			return fmt.Errorf("%d of %d routes are not programmed: %w", waiting, len(list.Items), limited.Err())
		case <-time.After(3 * time.Second):
		}
	}
}

// programmed reports whether a route's first parent says so.
func programmed(route map[string]any) bool {
	parents, _, _ := unstructured.NestedSlice(route, "status", "parents")
	if len(parents) == 0 {
		return false
	}
	parent, _ := parents[0].(map[string]any)
	conditions, _, _ := unstructured.NestedSlice(parent, "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "fairlead.dev/Programmed" && condition["status"] == "True"
	})
}

// awaitServed returns what asks for a host until it is served.
func (b *routesBench) awaitServed() func(context.Context, int) error {
	clients := sync.Pool{New: func() any { return b.asker() }}
	return func(ctx context.Context, i int) error {
		c, _ := clients.Get().(*http.Client)
		defer clients.Put(c)
		for {
			status, _, err := b.ask(ctx, c, routeHost(i))
			if err == nil && status == http.StatusOK {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is answered %d: %w", routeHost(i), status, errors.Join(ctx.Err(), err))
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
}

// asker is a client with one connection to the edge.
func (b *routesBench) asker() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: b.edge.Dial, MaxConnsPerHost: 1}}
}

func (b *routesBench) entrance() string { return netip.AddrPortFrom(b.edge.Addr4(), vipPort).String() }

func (b *routesBench) ask(ctx context.Context, c *http.Client, host string) (status int, backend string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.entrance()+"/", nil)
	if err != nil {
		return 0, "", err
	}
	request.Host = host
	answer, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	_ = answer.Body.Close()
	return answer.StatusCode, answer.Header.Get("X-Backend"), nil
}

func (b *routesBench) memory(ctx context.Context) (err error) {
	b.progress("%d routes: memory", b.row.Routes)
	if b.row.PlaneRSS, err = settled(ctx, b.Now, b.plane.Process.Pid().ID); err != nil {
		return err
	}
	if b.row.AgentRSS, err = rss(b.agent.Process.Pid().ID); err != nil {
		return err
	}
	envoy, err := b.agent.Envoy()
	if err != nil {
		return err
	}
	b.row.EnvoyRSS, err = rss(envoy.Pid.ID)
	return err
}

// changes sends one route from one service to the other and back, without load and with.
func (b *routesBench) changes(ctx context.Context) error {
	b.progress("%d routes: change one %d times", b.row.Routes, b.Changes)
	idle, err := b.change(ctx)
	if err != nil {
		return err
	}
	b.row.ChangeP50, b.row.ChangeP99, b.row.ChangeMax = percentile(idle, 0.5), percentile(idle, 0.99), percentile(idle, 1)
	b.progress("%d routes: the same under load", b.row.Routes)
	run, err := load.Start(ctx, load.Config{
		Address: b.entrance(), Dial: b.edge.Dial, Host: routeHost(b.row.Routes / 2), Rate: b.Rate, Concurrency: 64, Now: b.Now,
	})
	if err != nil {
		return err
	}
	loaded, err := b.change(ctx)
	report := run.Stop()
	if err != nil {
		return err
	}
	b.row.ChangeLoadedP50, b.row.ChangeLoadedP99, b.row.ChangeLoadedMax = percentile(loaded, 0.5), percentile(loaded, 0.99), percentile(loaded, 1)
	b.row.LoadRate, b.row.LoadP99 = math.Round(report.Rate()), millis(report.Latency.P99)
	b.row.Errors += report.Failed
	return nil
}

// change returns how long each change took to reach a request, ms.
func (b *routesBench) change(ctx context.Context) ([]float64, error) {
	// Not the host under load, and not the first one.
	const route = 1
	routes, c := b.api.Resource(httpRoutes).Namespace("default"), b.asker()
	var took []float64
	for i := range b.Changes {
		to := (i + 1) % 2
		patch := fmt.Sprintf(`{"spec":{"rules":[{"backendRefs":[{"name":%q,"port":80}]}]}}`, appName(to))
		if _, err := routes.Patch(ctx, routeName(route), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return nil, fmt.Errorf("change a route: %w", err)
		}
		answered := b.Now()
		for limit := answered.Add(10 * time.Second); ; {
			status, by, err := b.ask(ctx, c, routeHost(route))
			now := b.Now()
			if err != nil || status != http.StatusOK {
				b.row.Errors++
			}
			if by == backendName(to) {
				took = append(took, millis(now.Sub(answered)))
				break
			}
			if now.After(limit) {
				return nil, fmt.Errorf("change %d is not served after 10 s: status %d by %q, %w", i, status, by, err)
			}
		}
	}
	return took, nil
}

// external measures a plane that leads on the API of another process, with the same data.
func (b *routesBench) external(ctx context.Context) (err error) {
	b.progress("%d routes: a plane on an outside API", b.row.Routes)
	if err := b.plane.Process.Stop(ctx, stopTime); err != nil {
		return err
	}
	machine := b.plane.Machine
	if _, err := b.StartAPI(ctx, machine, b.plane.Dir); err != nil {
		return err
	}
	outside, err := b.StartPlane(ctx, machine, rig.PlaneOptions{
		Name: "plane-external", Args: []string{"--kubeconfig", filepath.Join(b.plane.Dir, "admin.kubeconfig")},
	})
	if err != nil {
		return err
	}
	if err := b.Await(ctx, "the plane to lead", func(ctx context.Context) error {
		status, err := outside.Status(ctx)
		if err == nil && !status.Plane.Leading {
			err = errors.New("it stands by")
		}
		return err
	}); err != nil {
		return err
	}
	b.row.ExternalRSS, err = settled(ctx, b.Now, outside.Process.Pid().ID)
	return err
}

// inParallel calls do with 0 to n-1 and returns the first error.
func inParallel(ctx context.Context, workers, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
func millis(d time.Duration) float64  { return float64(d.Microseconds()) / 1000 }

// percentile of values by nearest rank; 0 of none.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

func routeObject(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
		"metadata": map[string]any{"name": routeName(i), "namespace": "default"},
		"spec": map[string]any{
			"parentRefs": []any{map[string]any{"name": "edge"}},
			"hostnames":  []any{routeHost(i)},
			"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": appName(0), "port": int64(80)}}}},
		},
	}}
}

func serviceManifest(name string, a netip.Addr) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  clusterIP: None
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[1]s-1
  namespace: default
  labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: bench.fairlead.dev}
addressType: IPv4
ports: [{name: http, port: %[2]d}]
endpoints: [{addresses: [%[3]q], conditions: {ready: true}}]
`, name, backendPort, a)
}
