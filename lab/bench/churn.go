package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"fairlead.dev/lab"
)

// ChurnResult is how far statuses are behind the truth while routes of one Gateway come and go at
// a steady rate. Times are in seconds, from the API's answer to the change until a watch of the
// API shows a status that knows of it.
type ChurnResult struct {
	Routes int     `json:"routes"`
	Rate   float64 `json:"changes_per_s"`
	// Reached is the rate at which the API took them.
	Reached float64 `json:"changes_reached_per_s"`
	// Attached is the count of routes in the Gateway's status, of each change.
	AttachedP50 float64 `json:"attached_p50_s"`
	AttachedP99 float64 `json:"attached_p99_s"`
	AttachedMax float64 `json:"attached_max_s"`
	// Programmed is each route's own condition, since its creation.
	ProgrammedP50 float64 `json:"programmed_p50_s"`
	ProgrammedP99 float64 `json:"programmed_p99_s"`
	ProgrammedMax float64 `json:"programmed_max_s"`
	// Secret is the condition of a listener whose certificate comes in the middle.
	Secret float64 `json:"late_secret_s"`
	// Writes of statuses by the plane.
	Writes float64 `json:"status_writes"`
}

// churnLimit is how long the last statuses may take.
const churnLimit = 2 * time.Minute

var (
	gatewaysResource = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	secretsResource  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// churnBench is a routesBench whose routes come and go.
type churnBench struct {
	*routesBench
	result ChurnResult

	mu sync.Mutex
	// What the watches saw: when the Gateway's count became another one, when a route first said
	// that it is programmed, and when the listener with the late certificate did.
	counts     []countAt
	programmed map[string]time.Time
	secret     time.Time
}

// countAt is a count of attached routes and when it was seen first.
type countAt struct {
	routes int
	at     time.Time
}

func measureChurn(ctx context.Context, o RoutesOptions, n int) (r ChurnResult, err error) {
	l, err := lab.Up(ctx, routesTopology(), o.Lab)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	b := &churnBench{routesBench: newRoutesBench(o, l, n), programmed: map[string]time.Time{}}
	b.result = ChurnResult{Routes: n, Rate: o.ChurnRate}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, step := range []func(context.Context) error{b.build, b.await, b.watch, b.churn} {
		if err := step(ctx); err != nil {
			return b.result, err
		}
	}
	return b.result, nil
}

// await applies a Gateway with a listener whose Secret is missing, and waits for its status.
func (b *churnBench) await(ctx context.Context) error {
	b.progress("%d routes at %.0f a second: wait for the Gateway", b.result.Routes, b.result.Rate)
	manifest := gatewayManifest("edge") + `  - {name: late, port: 443, protocol: HTTPS, hostname: late.example.com, tls: {certificateRefs: [{name: late}]}}
`
	if _, err := b.plane.Apply(ctx, manifest); err != nil {
		return err
	}
	return b.Await(ctx, "the Gateway's status", func(ctx context.Context) error {
		g, err := b.api.Resource(gatewaysResource).Namespace("default").Get(ctx, "edge", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !isTrue(listenerOf(g, "http"), "Programmed") || listenerOf(g, "late") == nil || isTrue(listenerOf(g, "late"), "Programmed") {
			return errors.New("it is not programmed yet")
		}
		return nil
	})
}

// watch follows the Gateway and the routes.
func (b *churnBench) watch(ctx context.Context) error {
	for _, resource := range []schema.GroupVersionResource{gatewaysResource, httpRoutes} {
		var at string
		begin := func() (watch.Interface, error) {
			return b.api.Resource(resource).Namespace("default").Watch(ctx, metav1.ListOptions{ResourceVersion: at})
		}
		w, err := begin()
		if err != nil {
			return err
		}
		go func() {
			// An API that is busy ends the watches of those who read too slowly.
			for ; err == nil; w, err = begin() {
				for e := range w.ResultChan() {
					if at = b.see(e); at == "" {
						break
					}
				}
				w.Stop()
			}
		}()
	}
	return nil
}

// see takes an event and returns from where the watch goes on; empty is from what there is.
func (b *churnBench) see(e watch.Event) (at string) {
	o, is := e.Object.(*unstructured.Unstructured)
	if !is || e.Type == watch.Error {
		return ""
	}
	at = o.GetResourceVersion()
	if e.Type == watch.Deleted {
		return at
	}
	now := b.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.GetKind() == "HTTPRoute" {
		if b.programmed[o.GetName()].IsZero() && programmed(o.Object) {
			b.programmed[o.GetName()] = now
		}
		return at
	}
	attached, _, _ := unstructured.NestedInt64(listenerOf(o, "http"), "attachedRoutes")
	if n := len(b.counts); n == 0 || b.counts[n-1].routes != int(attached) {
		b.counts = append(b.counts, countAt{int(attached), now})
	}
	if b.secret.IsZero() && isTrue(listenerOf(o, "late"), "Programmed") {
		b.secret = now
	}
	return at
}

// listenerOf is the status of a Gateway's listener, nil if it has none.
func listenerOf(gateway *unstructured.Unstructured, name string) map[string]any {
	statuses, _, _ := unstructured.NestedSlice(gateway.Object, "status", "listeners")
	for _, s := range statuses {
		if status, is := s.(map[string]any); is && status["name"] == name {
			return status
		}
	}
	return nil
}

func isTrue(status map[string]any, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	for _, c := range conditions {
		if c, is := c.(map[string]any); is && c["type"] == condition {
			return c["status"] == "True"
		}
	}
	return false
}

// churn has the routes come and go.
func (b *churnBench) churn(ctx context.Context) error {
	n := b.result.Routes
	before, err := writes(ctx, b.plane)
	if err != nil {
		return err
	}
	secret, err := lateSecret(b.Now())
	if err != nil {
		return err
	}
	began := b.Now()
	routes := b.api.Resource(httpRoutes).Namespace("default")
	b.progress("%d routes at %.0f a second: write", n, b.result.Rate)
	var wrote time.Time
	created, err := b.steadily(ctx, n, func(ctx context.Context, i int) error {
		if i == n/2 {
			if _, err := b.api.Resource(secretsResource).Namespace("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
				return err
			}
			wrote = b.Now()
		}
		_, err := routes.Create(ctx, routeObject(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if err := b.settle(ctx, n, n); err != nil {
		return err
	}
	b.progress("%d routes at %.0f a second: delete", n, b.result.Rate)
	resumed := b.Now()
	deleted, err := b.steadily(ctx, n, func(ctx context.Context, i int) error {
		return routes.Delete(ctx, routeName(i), metav1.DeleteOptions{})
	})
	if err != nil {
		return err
	}
	if err := b.settle(ctx, 0, n); err != nil {
		return err
	}
	after, err := writes(ctx, b.plane)
	b.result.Writes = after - before
	b.result.Reached = math.Round(float64(2*n) / (lasted(began, created) + lasted(resumed, deleted)).Seconds())
	b.judge(created, wrote, deleted)
	return err
}

// steadily does something n times at the rate and returns when each was answered.
func (b *churnBench) steadily(ctx context.Context, n int, do func(context.Context, int) error) ([]time.Time, error) {
	pace := time.NewTicker(time.Duration(float64(time.Second) / b.result.Rate))
	defer pace.Stop()
	done := make([]time.Time, n)
	err := inParallel(ctx, routeWriters, n, func(ctx context.Context, i int) error {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := do(ctx, i)
		done[i] = b.Now()
		return err
	})
	return done, err
}

// lasted is how long it took until the last of them.
func lasted(began time.Time, done []time.Time) time.Duration {
	return slices.MaxFunc(done, time.Time.Compare).Sub(began)
}

// settle waits until the Gateway counts so many routes, and so many were programmed.
func (b *churnBench) settle(ctx context.Context, count, programmed int) error {
	ctx, cancel := context.WithTimeout(ctx, churnLimit)
	defer cancel()
	for {
		b.mu.Lock()
		n, is, secret := len(b.counts), len(b.programmed), !b.secret.IsZero()
		counts := n > 0 && b.counts[n-1].routes == count
		b.mu.Unlock()
		if counts && secret && is == programmed {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s the Gateway counts %d routes: %v; %d are programmed; the late Secret is served: %v", churnLimit, count, counts, is, secret)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// judge finds for each change the first status that knows of it.
func (b *churnBench) judge(created []time.Time, secret time.Time, deleted []time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(created)
	var attached, programmed []float64
	at := 0
	for i, when := range created {
		programmed = append(programmed, seconds(max(0, b.programmed[routeName(i)].Sub(when))))
	}
	// So many changes had been answered then.
	for i, when := range slices.SortedFunc(slices.Values(created), time.Time.Compare) {
		for b.counts[at].routes < i+1 {
			at++
		}
		attached = append(attached, seconds(max(0, b.counts[at].at.Sub(when))))
	}
	for i, when := range slices.SortedFunc(slices.Values(deleted), time.Time.Compare) {
		for b.counts[at].routes > n-i-1 {
			at++
		}
		attached = append(attached, seconds(max(0, b.counts[at].at.Sub(when))))
	}
	r := &b.result
	r.Secret = seconds(b.secret.Sub(secret))
	r.AttachedP50, r.AttachedP99, r.AttachedMax = percentile(attached, 0.5), percentile(attached, 0.99), percentile(attached, 1)
	r.ProgrammedP50, r.ProgrammedP99, r.ProgrammedMax = percentile(programmed, 0.5), percentile(programmed, 0.99), percentile(programmed, 1)
}

// lateSecret is a certificate that signs itself.
func lateSecret(now time.Time) (*unstructured.Unstructured, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"late.example.com"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := func(kind string, der []byte) string {
		return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": "late", "namespace": "default"},
		"stringData": map[string]any{"tls.crt": text("CERTIFICATE", der), "tls.key": text("PRIVATE KEY", private)},
	}}, nil
}
