package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

var (
	namespaces     = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	services       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// Where a plane and an agent answer on their machines.
const (
	planeAt = "http://127.0.0.1:7080"
	agentAt = "http://127.0.0.1:7081"
)

// seeingBench is some edges with many routes of many namespaces.
type seeingBench struct {
	SeeingOptions
	*rig.Rig
	plane    *rig.Plane
	agents   []*rig.Agent
	machine  *lab.Machine // of the plane
	edges    []*lab.Machine
	backends *lab.Machine
	api      dynamic.Interface
	marks    int // changes of the route that is changed
	row      SeeingRow
}

func edgeName(i int) string { return "edge-" + strconv.Itoa(i+1) }

func newSeeingBench(o SeeingOptions, l *lab.Lab, n int) *seeingBench {
	b := &seeingBench{
		SeeingOptions: o, row: SeeingRow{Routes: n}, machine: l.Machine("plane"), backends: l.Machine("os1"),
		Rig: &rig.Rig{Lab: l, Binary: o.Binary, Kubectl: o.Kubectl, Envoy: o.Envoy, Now: o.Now},
	}
	for i := range o.Edges {
		b.edges = append(b.edges, l.Machine(edgeName(i)))
	}
	return b
}

func (b *seeingBench) build(ctx context.Context) (err error) {
	b.progress("%d routes: start", b.row.Routes)
	if err := b.serveBackends(ctx); err != nil {
		return err
	}
	if b.plane, err = b.StartPlane(ctx, b.machine, rig.PlaneOptions{}); err != nil {
		return err
	}
	if b.api, err = client(b.plane); err != nil {
		return err
	}
	for _, m := range b.edges {
		a, err := b.StartAgent(ctx, m, b.plane, "--envoy-threads", "1", "--data-plane", "none")
		if err != nil {
			return err
		}
		b.agents = append(b.agents, a)
	}
	for _, a := range b.agents {
		if err := a.AwaitReady(ctx); err != nil {
			return err
		}
	}
	_, err = b.plane.Apply(ctx, gatewayClass+"---\n"+strings.Replace(gatewayManifest("edge"), "protocol: HTTP", "protocol: HTTP, allowedRoutes: {namespaces: {from: All}}", 1))
	return err
}

// serveBackends answers at each address of the backends, with the name of the Service's address, after as long as the path says: /wait/20ms.
func (b *seeingBench) serveBackends(ctx context.Context) error {
	for i, a := range b.backends.Addrs4() {
		l, err := b.backends.Listen(ctx, "tcp4", netip.AddrPortFrom(a, backendPort).String())
		if err != nil {
			return err
		}
		name := backendName(i)
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, err := time.ParseDuration(strings.TrimPrefix(r.URL.Path, "/wait/")); err == nil {
				time.Sleep(min(d, time.Second))
			}
			w.Header().Set("X-Backend", name)
			_, _ = io.WriteString(w, "ok\n")
		})}
		go func() { _ = s.Serve(l) }()
		context.AfterFunc(ctx, func() { _ = s.Close() })
	}
	return nil
}

func (b *seeingBench) namespace(i int) string {
	return fmt.Sprintf("team-%d", i%min(b.Namespaces, b.row.Routes))
}

func seenHost(i int) string { return fmt.Sprintf("app-%d.example.com", i) }

// write creates everything and waits until each host is served by the first edge, and the last one by the others.
func (b *seeingBench) write(ctx context.Context) error {
	n := b.row.Routes
	b.progress("%d routes: write them, with Services and EndpointSlices in %d namespaces", n, b.Namespaces)
	if err := inParallel(ctx, routeWriters, min(b.Namespaces, n), func(ctx context.Context, i int) error {
		return create(ctx, b.api.Resource(namespaces), map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": b.namespace(i)}})
	}); err != nil {
		return err
	}
	if err := inParallel(ctx, routeWriters, n, func(ctx context.Context, i int) error {
		name, namespace := appName(i), b.namespace(i)
		metadata := map[string]any{"name": name, "namespace": namespace}
		return errors.Join(
			create(ctx, b.api.Resource(services).Namespace(namespace), map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": metadata,
				"spec": map[string]any{"clusterIP": "None", "ports": []any{map[string]any{"name": "http", "port": int64(80)}}},
			}),
			create(ctx, b.api.Resource(endpointSlices).Namespace(namespace), map[string]any{
				"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
				"metadata": map[string]any{"name": name + "-1", "namespace": namespace, "labels": map[string]any{
					"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "bench.fairlead.dev",
				}},
				"ports": []any{map[string]any{"name": "http", "port": int64(backendPort)}}, "endpoints": b.endpoints(),
			}),
			create(ctx, b.api.Resource(httpRoutes).Namespace(namespace), map[string]any{
				"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": routeName(i), "namespace": namespace},
				"spec": map[string]any{
					"parentRefs": []any{map[string]any{"name": "edge", "namespace": "default"}},
					"hostnames":  []any{seenHost(i)},
					"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": name, "port": int64(80)}}}},
				},
			}))
	}); err != nil {
		return fmt.Errorf("write a route: %w", err)
	}
	b.progress("%d routes: wait until all are served", n)
	limited, cancel := context.WithTimeout(ctx, 2*programLimit)
	defer cancel()
	for i := range b.edges {
		if err := b.awaitServed(limited, i, n-1); err != nil {
			return err
		}
	}
	asker := b.asker(0)
	for i := range n { // each route has its counters
		if err := b.awaitServedBy(limited, asker, 0, i); err != nil {
			return err
		}
	}
	return nil
}

func (b *seeingBench) endpoints() []any {
	var list []any
	for _, a := range b.backends.Addrs4() {
		list = append(list, map[string]any{"addresses": []any{a.String()}, "conditions": map[string]any{"ready": true}})
	}
	return list
}

func create(ctx context.Context, to dynamic.ResourceInterface, o map[string]any) error {
	_, err := to.Create(ctx, &unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
	return err
}

func (b *seeingBench) asker(edge int) *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: b.edges[edge].Dial, MaxConnsPerHost: 1}}
}

func (b *seeingBench) awaitServed(ctx context.Context, edge, route int) error {
	return b.awaitServedBy(ctx, b.asker(edge), edge, route)
}

func (b *seeingBench) awaitServedBy(ctx context.Context, c *http.Client, edge, route int) error {
	for {
		status, err := b.ask(ctx, c, edge, seenHost(route))
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is answered %d by %s: %w", seenHost(route), status, edgeName(edge), errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *seeingBench) entrance(edge int) string {
	return netip.AddrPortFrom(b.edges[edge].Addr4(), vipPort).String()
}

func (b *seeingBench) ask(ctx context.Context, c *http.Client, edge int, host string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.entrance(edge)+"/", nil)
	if err != nil {
		return 0, err
	}
	request.Host = host
	answer, err := c.Do(request)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode, nil
}

// scrapes counts the series of an edge and of the plane, and takes the time of scrapes.
func (b *seeingBench) scrapes(ctx context.Context) (err error) {
	b.progress("%d routes: scrape", b.row.Routes)
	envoy, err := b.agents[0].Envoy()
	if err != nil {
		return err
	}
	before, err := mainThread(envoy.Pid.ID)
	if err != nil {
		return err
	}
	var took []float64
	for range 10 {
		began := b.Now()
		if b.row.EdgeSeries, err = scrape(ctx, b.edges[0], agentAt); err != nil {
			return err
		}
		took = append(took, millis(b.Now().Sub(began)))
		time.Sleep(1200 * time.Millisecond) // a scrape shares the proxy's answer of a second ago
	}
	after, err := mainThread(envoy.Pid.ID)
	if err != nil {
		return err
	}
	b.row.MainThread = millis((after - before) / time.Duration(len(took)))
	b.row.ScrapeP50, b.row.ScrapeMax = percentile(took, 0.5), percentile(took, 1)
	b.row.PlaneSeries, err = scrape(ctx, b.machine, planeAt)
	return err
}

// mainThread is the processor time that the first thread of a process has used.
func mainThread(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	used, _, _ := strings.Cut(string(raw), " ") // nanoseconds (kernel: scheduler/sched-stats)
	n, err := strconv.ParseInt(used, 10, 64)
	return time.Duration(n), err
}

// scrape returns the number of series that are ours.
func scrape(ctx context.Context, m *lab.Machine, at string) (series int, err error) {
	body, err := get(ctx, m.HTTPClient(), at+"/metrics")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "fairlead_") {
			series++
		}
	}
	return series, lines.Err()
}

func get(ctx context.Context, c *http.Client, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s is answered %s: %s", url, answer.Status, text)
	}
	return answer.Body, nil
}

func (b *seeingBench) memory(ctx context.Context) (err error) {
	if b.row.PlaneRSS, err = settled(ctx, b.Now, b.plane.Process.Pid().ID); err != nil {
		return err
	}
	if b.row.AgentRSS, err = rss(b.agents[0].Process.Pid().ID); err != nil {
		return err
	}
	envoy, err := b.agents[0].Envoy()
	if err != nil {
		return err
	}
	b.row.EnvoyRSS, err = rss(envoy.Pid.ID)
	return err
}

// changes changes one route, in turns with nobody looking and while viewers look and each edge is scraped.
func (b *seeingBench) changes(ctx context.Context) error {
	b.progress("%d routes: change one %d times, seen and unseen", b.row.Routes, 2*b.Changes)
	const turns = 6
	var plain, seen []float64
	for turn := range 2 * turns {
		stop := func() error { return nil }
		if turn%2 == 1 {
			stop = b.look(ctx, true)
		}
		took, err := b.change(ctx, max(1, b.Changes/turns))
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		if turn%2 == 1 {
			seen = append(seen, took...)
		} else {
			plain = append(plain, took...)
		}
	}
	b.row.ChangeP50, b.row.ChangeP99 = percentile(plain, 0.5), percentile(plain, 0.99)
	b.row.ChangeSeenP50, b.row.ChangeSeenP99 = percentile(seen, 0.5), percentile(seen, 0.99)
	return nil
}

// change has the route of index 0 answer with another header, so many times.
func (b *seeingBench) change(ctx context.Context, n int) (took []float64, err error) {
	namespace, c := b.namespace(0), b.asker(0)
	for range n {
		b.marks++
		want, header := strconv.Itoa(b.marks), "X-Mark"
		// Clients see the header, and readers of the read API the path.
		patch := fmt.Sprintf(`{"spec":{"rules":[{"filters":[{"type":"ResponseHeaderModifier","responseHeaderModifier":{"set":[{"name":%[1]q,"value":%[2]q}]}}],
"backendRefs":[{"name":%[3]q,"port":80}]},{"matches":[{"path":{"type":"PathPrefix","value":"/mark-%[2]s"}}],"backendRefs":[{"name":%[3]q,"port":80}]}]}}`,
			header, want, appName(0))
		if _, err := b.api.Resource(httpRoutes).Namespace(namespace).Patch(ctx, routeName(0), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return nil, fmt.Errorf("change a route: %w", err)
		}
		answered := b.Now()
		for limit := answered.Add(20 * time.Second); ; {
			got, err := b.headerOf(ctx, c, header)
			now := b.Now()
			if err == nil && got == want {
				took = append(took, millis(now.Sub(answered)))
				break
			}
			if now.After(limit) {
				return nil, fmt.Errorf("change %s is not served after 20 s: %q, %w", want, got, err)
			}
		}
	}
	return took, nil
}

func (b *seeingBench) headerOf(ctx context.Context, c *http.Client, header string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.entrance(0)+"/", nil)
	if err != nil {
		return "", err
	}
	request.Host = seenHost(0)
	answer, err := c.Do(request)
	if err != nil {
		return "", err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.Header.Get(header), nil
}

func toFourth(v float64) float64 { return math.Round(v*10000) / 10000 }
