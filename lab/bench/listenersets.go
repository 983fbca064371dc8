package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// ListenerSetsResult is what many routes on one Gateway cost that attach through
// ListenerSets.
type ListenerSetsResult struct {
	Routes    int `json:"routes"`
	Sets      int `json:"listener_sets"`
	Listeners int `json:"listeners"`
	// APIWrite is how long it took to create the routes; Attached the time from then until
	// every listener counted its routes, and Status until every route's status was written.
	APIWrite float64 `json:"api_write_s"`
	Attached float64 `json:"attached_s"`
	Status   float64 `json:"status_s"`
	// Served of a sample of hosts that were asked for.
	Asked  int `json:"hosts_asked"`
	Served int `json:"hosts_served"`
	// Wrong counts of attached routes, at the end and over the quiet time after it.
	Wrong int `json:"wrong_counts"`
	// Writes of statuses by the plane until then, and in the quiet time, without a change.
	Writes      float64 `json:"status_writes"`
	QuietWrites float64 `json:"status_writes_quiet"`
	Quiet       float64 `json:"quiet_s"`
}

const (
	listenersOfSet = 20
	routesPerSet   = 400
	quietTime      = 20 * time.Second
	attachLimit    = 15 * time.Minute
)

var listenerSets = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "listenersets"}

// listenerSetsBench is a routesBench whose routes attach through ListenerSets.
type listenerSetsBench struct {
	*routesBench
	result ListenerSetsResult
}

func measureListenerSets(ctx context.Context, o RoutesOptions, n int) (r ListenerSetsResult, err error) {
	l, err := lab.Up(ctx, routesTopology(), o.Lab)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	b := &listenerSetsBench{routesBench: newRoutesBench(o, l, n)}
	sets := max(1, n/routesPerSet)
	b.result = ListenerSetsResult{Routes: n, Sets: sets, Listeners: sets * listenersOfSet, Quiet: quietTime.Seconds()}
	for _, step := range []func(context.Context) error{b.build, b.allow, b.write, b.awaitCounts, b.ask, b.quiet} {
		if err := step(ctx); err != nil {
			return b.result, err
		}
	}
	return b.result, nil
}

// allow makes the ListenerSets.
func (b *listenerSetsBench) allow(ctx context.Context) error {
	b.progress("%d routes: make %d ListenerSets of one Gateway", b.result.Routes, b.result.Sets)
	gateway := strings.Replace(gatewayManifest("edge"), "  gatewayClassName:", "  allowedListeners: {namespaces: {from: Same}}\n  gatewayClassName:", 1)
	if _, err := b.plane.Apply(ctx, gateway); err != nil {
		return err
	}
	return inParallel(ctx, routeWriters, b.result.Sets, func(ctx context.Context, set int) error {
		var listeners []any
		for i := range listenersOfSet {
			listeners = append(listeners, map[string]any{
				"name": "l" + strconv.Itoa(i), "port": int64(vipPort), "protocol": "HTTP", "hostname": "*." + setDomain(set, i),
			})
		}
		_, err := b.api.Resource(listenerSets).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
			"metadata": map[string]any{"name": setName(set), "namespace": "default"},
			"spec":     map[string]any{"parentRef": map[string]any{"name": "edge"}, "listeners": listeners},
		}}, metav1.CreateOptions{})
		return err
	})
}

func setName(set int) string { return "set-" + strconv.Itoa(set) }

func setDomain(set, listener int) string { return fmt.Sprintf("l%d.set-%d.example.com", listener, set) }

// place is the ListenerSet and the listener of a route.
func (b *listenerSetsBench) place(route int) (set, listener int) {
	return route % b.result.Sets, route / b.result.Sets % listenersOfSet
}

func (b *listenerSetsBench) host(route int) string {
	set, listener := b.place(route)
	return "app-" + strconv.Itoa(route) + "." + setDomain(set, listener)
}

func (b *listenerSetsBench) write(ctx context.Context) error {
	b.progress("%d routes: write", b.result.Routes)
	began := b.Now()
	err := inParallel(ctx, routeWriters, b.result.Routes, func(ctx context.Context, i int) error {
		set, listener := b.place(i)
		o := routeObject(i)
		o.Object["spec"].(map[string]any)["hostnames"] = []any{b.host(i)}       //nolint:forcetypeassert // made above
		o.Object["spec"].(map[string]any)["parentRefs"] = []any{map[string]any{ //nolint:forcetypeassert // made above
			"kind": "ListenerSet", "name": setName(set), "sectionName": "l" + strconv.Itoa(listener),
		}}
		_, err := b.api.Resource(httpRoutes).Namespace("default").Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	b.result.APIWrite = seconds(b.Now().Sub(began))
	return err
}

// awaitCounts waits until every listener counts its routes, and every status is written.
func (b *listenerSetsBench) awaitCounts(ctx context.Context) error {
	b.progress("%d routes: written in %.0f s; wait for the listeners to count them", b.result.Routes, b.result.APIWrite)
	began := b.Now()
	for {
		wrong, err := b.wrong(ctx)
		if err != nil {
			return err
		}
		waited := b.Now().Sub(began)
		if wrong == 0 {
			b.result.Attached = seconds(waited)
			break
		}
		if waited > attachLimit {
			b.result.Wrong = wrong
			return fmt.Errorf("%d of %d listeners count wrong after %s", wrong, b.result.Listeners, waited)
		}
		time.Sleep(time.Second)
	}
	if err := b.awaitStatus(ctx); err != nil {
		return err
	}
	b.result.Status = seconds(b.Now().Sub(began))
	return nil
}

// wrong is how many listeners do not count the routes that attach to them.
func (b *listenerSetsBench) wrong(ctx context.Context) (int, error) {
	want := map[[2]int]int64{}
	for i := range b.result.Routes {
		set, listener := b.place(i)
		want[[2]int{set, listener}]++
	}
	wrong := 0
	for set := range b.result.Sets {
		o, err := b.api.Resource(listenerSets).Namespace("default").Get(ctx, setName(set), metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		counted := map[string]int64{}
		statuses, _, _ := unstructured.NestedSlice(o.Object, "status", "listeners")
		for _, s := range statuses {
			if status, ok := s.(map[string]any); ok {
				name, _ := status["name"].(string)
				counted[name], _ = status["attachedRoutes"].(int64)
			}
		}
		for i := range listenersOfSet {
			if counted["l"+strconv.Itoa(i)] != want[[2]int{set, i}] {
				wrong++
			}
		}
	}
	return wrong, nil
}

// ask asks for a sample of hosts.
func (b *listenerSetsBench) ask(ctx context.Context) error {
	c := b.asker()
	for i := 0; i < b.result.Routes; i += max(1, b.result.Routes/200) {
		b.result.Asked++
		if status, _, err := b.routesBench.ask(ctx, c, b.host(i)); err == nil && status == http.StatusOK {
			b.result.Served++
		}
	}
	return ctx.Err()
}

// quiet looks at the counts and at the writes while nothing changes.
func (b *listenerSetsBench) quiet(ctx context.Context) error {
	b.progress("%d routes: nothing changes for %s", b.result.Routes, quietTime)
	var err error
	if b.result.Writes, err = writes(ctx, b.plane); err != nil {
		return err
	}
	for end := b.Now().Add(quietTime); b.Now().Before(end); time.Sleep(2 * time.Second) {
		wrong, err := b.wrong(ctx)
		if err != nil {
			return err
		}
		b.result.Wrong += wrong
	}
	after, err := writes(ctx, b.plane)
	b.result.QuietWrites = after - b.result.Writes
	return err
}

// writes is how many statuses the plane has written.
func writes(ctx context.Context, p *rig.Plane) (total float64, err error) {
	body, err := p.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	lines := bufio.NewScanner(io.LimitReader(body, 16<<20))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "fairlead_plane_status_writes_total"); ok && strings.Contains(rest, `result="written"`) {
			n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("read the plane's metrics: %w", err)
			}
			total += n
		}
	}
	return total, lines.Err()
}
