package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// TranslateOptions choose the sizes of the benchmark of translation. The zero value
// is the one whose figures are published.
type TranslateOptions struct {
	Routes    int // default 20,000: half HTTPRoutes, half IngressRoutes
	Endpoints int // default 100,000, over as many Services as there are routes
	Large     int // endpoints of one more Service, in slices of 100; default 10,000
	Changes   int // measured changes of each kind, default 2,000
	Full      int // measured translations of the whole, default 5
}

// TranslateResult is what a translation costs: times of the processor of one core,
// without input and output.
type TranslateResult struct {
	Routes    int `json:"routes"`
	Endpoints int `json:"endpoints"`
	Hosts     int `json:"hosts"`
	// The whole snapshot from nothing, median.
	FullMillis float64 `json:"full_ms"`
	// One endpoint becomes ready or unready: one slice changes, one set comes of it.
	EndpointMicros    float64 `json:"one_endpoint_us"`
	EndpointMicrosP99 float64 `json:"one_endpoint_p99_us"`
	// The same in a Service of Large endpoints, whose set is made anew as a whole.
	Large       int     `json:"large_service_endpoints"`
	LargeMicros float64 `json:"one_endpoint_of_large_us"`
	// One route gets other weights: in turn an HTTPRoute, a root IngressRoute and one
	// that is delegated to.
	RouteMicros    float64 `json:"one_route_us"`
	RouteMicrosP99 float64 `json:"one_route_p99_us"`
	// One HTTPRoute comes and goes, each a change.
	NewRouteMicros float64 `json:"new_route_us"`
	// What the translator keeps besides the snapshot.
	HeapMB float64 `json:"heap_mb"`
}

func (o TranslateOptions) withDefaults() TranslateOptions {
	for _, d := range []struct {
		value     *int
		otherwise int
	}{{&o.Routes, 20_000}, {&o.Endpoints, 100_000}, {&o.Large, 10_000}, {&o.Changes, 2_000}, {&o.Full, 5}} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	return o
}

// Translate measures a full translation and single changes in a large snapshot.
// Every measured change is checked to have changed what it should, and only that.
func Translate(ctx context.Context, o TranslateOptions) (TranslateResult, error) {
	o = o.withDefaults()
	w := newTranslateWorld(o)
	result := TranslateResult{Routes: o.Routes, Endpoints: o.Endpoints, Large: o.Large}
	var full []time.Duration
	keys := w.snapshot.Keys()
	for range o.Full {
		if err := ctx.Err(); err != nil {
			return result, err
		}
		w.tr = nil
		heap := heapMB()
		w.tr = translate.New(translate.Config{})
		begin := time.Now()
		changes := w.tr.Apply(w.snapshot, keys)
		full = append(full, time.Since(begin))
		result.Hosts = len(changes.VirtualHosts)
		changes = translate.Changes{}
		result.HeapMB = math.Round((heapMB()-heap)*10) / 10
	}
	if want := o.Routes - o.Routes/4; result.Hosts != want {
		return result, fmt.Errorf("translated to %d hosts, want %d", result.Hosts, want)
	}
	result.FullMillis = math.Round(float64(median(full).Microseconds())/100) / 10

	for _, m := range []struct {
		change   func(round int) error
		p50, p99 *float64
	}{
		{w.flipEndpoint, &result.EndpointMicros, &result.EndpointMicrosP99},
		{w.flipLarge, &result.LargeMicros, nil},
		{w.changeRoute, &result.RouteMicros, &result.RouteMicrosP99},
		{w.comeAndGo, &result.NewRouteMicros, nil},
	} {
		w.took = w.took[:0]
		for round := range o.Changes {
			if err := ctx.Err(); err != nil {
				return result, err
			}
			if err := m.change(round); err != nil {
				return result, fmt.Errorf("change %d: %w", round, err)
			}
		}
		*m.p50 = micros(median(w.took), 1)
		if m.p99 != nil {
			*m.p99 = micros(w.took[len(w.took)*99/100], 1) // median sorted them
		}
	}
	return result, nil
}

func heapMB() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

const (
	translateTeams = 200 // namespaces
	translateLarge = "large"
)

// translateWorld is a snapshot of many teams: a Gateway for all, and for each four
// routes two HTTPRoutes with a host each, a root IngressRoute with its host, and one
// that it delegates to.
type translateWorld struct {
	options  TranslateOptions
	snapshot *snapshot.Snapshot
	tr       *translate.Translator
	took     []time.Duration
}

func newTranslateWorld(o TranslateOptions) *translateWorld {
	w := &translateWorld{options: o, snapshot: snapshot.New()}
	w.set(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "fairlead"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: translate.ControllerName}})
	all := gatewayv1.NamespacesFromAll
	w.set(&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "edge"}, Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "fairlead",
		Listeners: []gatewayv1.Listener{{
			Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType,
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &all}},
		}},
	}})
	for i := range o.Routes {
		w.set(translateService(teamName(i), serviceName(i)))
		size := o.Endpoints / o.Routes
		if i < o.Endpoints%o.Routes {
			size++
		}
		w.set(translateSlice(teamName(i), serviceName(i), 0, i, size, -1))
		w.set(w.route(i, 0))
	}
	w.set(translateService(teamName(0), translateLarge))
	for k := range (o.Large + 99) / 100 {
		w.set(translateSlice(teamName(0), translateLarge, k, o.Routes+k, min(100, o.Large-k*100), -1))
	}
	large := w.route(0, 0).(*gatewayv1.HTTPRoute)
	large.Spec.Rules[0].BackendRefs = append(large.Spec.Rules[0].BackendRefs, backendRef(translateLarge, 1))
	w.set(large)
	return w
}

func (w *translateWorld) set(o metav1.Object) snapshot.Key {
	k, err := w.snapshot.Set(o)
	if err != nil {
		panic("bug: " + err.Error()) // every kind made here is one of a snapshot
	}
	return k
}

// Routes come in fours, of one namespace.
func teamName(i int) string    { return "team-" + strconv.Itoa(i/4%translateTeams) }
func serviceName(i int) string { return "app-" + strconv.Itoa(i) }

func translateService(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// translateSlice makes one of a Service's slices; the endpoint of the given index
// is not ready.
func translateSlice(namespace, service string, index, unique, size, unready int) *discoveryv1.EndpointSlice {
	name, port := "http", int32(8080)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: service + "-" + strconv.Itoa(index),
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for e := range size {
		ready := e != unready
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", unique>>8&0xFF, unique&0xFF, 1+e)},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

func backendRef(service string, weight int32) gatewayv1.HTTPBackendRef {
	port := gatewayv1.PortNumber(80)
	return gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{
		BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service), Port: &port}, Weight: &weight,
	}}
}

// route makes a route: to its own service, and to its neighbour's with a weight that
// the round decides.
func (w *translateWorld) route(i, round int) metav1.Object {
	meta := metav1.ObjectMeta{Namespace: teamName(i), Name: serviceName(i), Generation: int64(round)}
	weight := int32(1 + round%999_983)
	neighbour := i - i%4 + (i+1)%4
	if neighbour >= w.options.Routes {
		neighbour = i
	}
	host := serviceName(i) + ".example.com"
	services := []contourv1beta1.Service{{Name: serviceName(i), Port: 80, Weight: ptr(int32(100))}, {Name: serviceName(neighbour), Port: 80, Weight: &weight}}
	switch i % 4 {
	case 0, 1:
		infra := gatewayv1.Namespace("infra")
		o := &gatewayv1.HTTPRoute{ObjectMeta: meta}
		o.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "edge", Namespace: &infra}}
		o.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(host)}
		o.Spec.Rules = []gatewayv1.HTTPRouteRule{
			{BackendRefs: []gatewayv1.HTTPBackendRef{backendRef(serviceName(i), 100), backendRef(serviceName(neighbour), weight)}},
			{Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Value: ptr("/api")}}}, BackendRefs: []gatewayv1.HTTPBackendRef{backendRef(serviceName(i), 1)}},
		}
		return o
	case 2:
		o := &contourv1beta1.IngressRoute{ObjectMeta: meta}
		o.Spec.VirtualHost = &contourv1beta1.VirtualHost{Fqdn: host}
		o.Spec.Routes = []contourv1beta1.Route{
			{Match: "/", Services: services},
			{Match: "/api", Delegate: &contourv1beta1.Delegate{Name: serviceName(i + 1)}},
		}
		return o
	default:
		o := &contourv1beta1.IngressRoute{ObjectMeta: meta}
		o.Spec.Routes = []contourv1beta1.Route{{Match: "/api", Services: services}}
		return o
	}
}

func ptr[T any](v T) *T { return &v }

// apply measures one change.
func (w *translateWorld) apply(k snapshot.Key) translate.Changes {
	begin := time.Now()
	changes := w.tr.Apply(w.snapshot, []snapshot.Key{k})
	w.took = append(w.took, time.Since(begin))
	return changes
}

// pickRoute spreads rounds over the routes. Coprime steps visit them all.
func (w *translateWorld) pickRoute(round int) int { return round * 7919 % w.options.Routes }

func (w *translateWorld) flipEndpoint(round int) error {
	i := w.pickRoute(round)
	n := snapshot.Name{Namespace: teamName(i), Name: serviceName(i) + "-0"}
	old := w.snapshot.EndpointSlices[n]
	if len(old.Endpoints) == 0 {
		return fmt.Errorf("%s has no endpoints", n)
	}
	unready := 0
	if !*old.Endpoints[0].Conditions.Ready {
		unready = -1
	}
	return onlySet(w.apply(w.set(translateSlice(n.Namespace, serviceName(i), 0, i, len(old.Endpoints), unready))))
}

func (w *translateWorld) flipLarge(round int) error {
	k := round % ((w.options.Large + 99) / 100)
	n := snapshot.Name{Namespace: teamName(0), Name: translateLarge + "-" + strconv.Itoa(k)}
	old := w.snapshot.EndpointSlices[n]
	unready := 0
	if !*old.Endpoints[0].Conditions.Ready {
		unready = -1
	}
	return onlySet(w.apply(w.set(translateSlice(n.Namespace, translateLarge, k, w.options.Routes+k, len(old.Endpoints), unready))))
}

func onlySet(c translate.Changes) error {
	if len(c.Sets) != 1 || len(c.VirtualHosts)+len(c.Groups)+len(c.Statuses)+len(c.Listeners)+len(c.Views) != 0 {
		return fmt.Errorf("one endpoint changed %d sets, %d hosts, %d groups, %d statuses", len(c.Sets), len(c.VirtualHosts), len(c.Groups), len(c.Statuses))
	}
	return nil
}

func (w *translateWorld) changeRoute(round int) error {
	i := max(w.pickRoute(round), 1) // 0 is that of the large service
	c := w.apply(w.set(w.route(i, round+1)))
	if len(c.VirtualHosts) != 1 || len(c.Statuses) != 1 || len(c.Groups)+len(c.Sets)+len(c.Listeners)+len(c.Views) != 0 {
		return fmt.Errorf("one route changed %d hosts, %d statuses, %d groups, %d sets", len(c.VirtualHosts), len(c.Statuses), len(c.Groups), len(c.Sets))
	}
	return nil
}

func (w *translateWorld) comeAndGo(round int) error {
	o := w.route(0, round).(*gatewayv1.HTTPRoute)
	o.Name, o.Spec.Hostnames = "another", []gatewayv1.Hostname{"another.example.com"}
	k := snapshot.Key{Kind: snapshot.KindHTTPRoute, Name: snapshot.Name{Namespace: o.Namespace, Name: o.Name}}
	if round%2 == 0 {
		w.set(o)
	} else {
		w.snapshot.Delete(k)
	}
	c := w.apply(k)
	// The Gateway counts its routes.
	if len(c.VirtualHosts) != 1 || len(c.Statuses) != 2 || !slices.Equal([]int{len(c.Groups), len(c.Sets)}, []int{0, 0}) {
		return fmt.Errorf("a route that came or went changed %d hosts, %d statuses, %d groups, %d sets", len(c.VirtualHosts), len(c.Statuses), len(c.Groups), len(c.Sets))
	}
	return nil
}
