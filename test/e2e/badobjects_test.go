package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"fairlead.dev/lab"
)

// bad is a kind of mistake: what is written, and what its status must say.
type bad struct {
	name string
	// manifest of the i-th object of this kind, in namespace "bad".
	manifest func(i int) string
	// kind and want are what the sample is asked for; a Secret has no status. want is that
	// of an IngressRoute if kind says so.
	kind string
	want condition
}

const gatewayAPI = "apiVersion: gateway.networking.k8s.io/v1\n"

// mistakes are those of which TestManyBadObjects makes its mixture.
func mistakes(random *rand.Rand) []bad {
	garbage := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	route := func(name, rule string, want condition) bad {
		return bad{name, func(i int) string {
			return httpRoute("bad", fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("%s-%d.bad.example.com", name, i), rule)
		}, "HTTPRoute", want}
	}
	ingress := func(name, says, rule string) bad {
		return bad{name, func(i int) string {
			return ingressRoute("bad", fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("%s-%d.bad.example.com", name, i), strings.ReplaceAll(rule, "NAME", fmt.Sprintf("%s-%d", name, i)))
		}, "IngressRoute", condition{message: says}}
	}
	return []bad{
		route("service", to("nobody"), condition{"ResolvedRefs", "False", "BackendNotFound", "…Service bad/nobody not found"}),
		route("regex", "{matches: [{path: {type: RegularExpression, value: '/(a'}}], backendRefs: [{name: app, port: 80}]}", condition{"Accepted", "False", "UnsupportedValue", "…"}),
		route("stranger", "{backendRefs: [{name: "+newsOS1+", namespace: news-team, port: 80}]}", condition{"ResolvedRefs", "False", "RefNotPermitted", "…"}),
		{"parent", func(i int) string {
			return strings.Replace(httpRoute("bad", fmt.Sprintf("parent-%d", i), fmt.Sprintf("parent-%d.bad.example.com", i), to("app")), "{name: edge, ", "{sectionName: nothere, name: edge, ", 1)
		}, "HTTPRoute", condition{"Accepted", "False", "NoMatchingParent", "…nothere…"}},
		{"same", func(i int) string {
			return ingressRoute("bad", fmt.Sprintf("same-%d", i), "same.bad.example.com", "{match: /, services: [{name: app, port: 80}]}")
		}, "IngressRoute", condition{message: `…fqdn "same.bad.example.com" is used in multiple IngressRoutes…`}},
		ingress("nobody", "spec.routes[0].services[0].name: Service bad/nobody not found", "{match: /, services: [{name: nobody, port: 80}]}"),
		ingress("cycle", "…delegation cycle…", "{match: /, delegate: {name: NAME}}"),
		ingress("weights", "…all weights are 0…", "{match: /, services: [{name: app, port: 80, weight: 0}]}"),
		{"grpc", func(i int) string {
			return gatewayAPI + fmt.Sprintf("kind: GRPCRoute\nmetadata: {name: grpc-%d, namespace: bad}\nspec: {parentRefs: [{name: edge, namespace: default}], hostnames: [grpc-%d.bad.example.com], rules: [{backendRefs: [{name: nobody, port: %d}]}]}\n", i, i, 1+random.IntN(60000))
		}, "GRPCRoute", condition{"ResolvedRefs", "False", "BackendNotFound", "…Service bad/nobody not found"}},
		{"gateway", func(i int) string {
			return gatewayAPI + fmt.Sprintf("kind: Gateway\nmetadata: {name: gateway-%d, namespace: bad}\nspec: {gatewayClassName: fairlead, listeners: [{name: tls, port: 443, protocol: HTTPS, hostname: gateway-%d.bad.example.com, tls: {certificateRefs: [{name: secret-%d}]}}]}\n", i, i, i)
		}, "Gateway", condition{"ResolvedRefs", "False", "ListenersNotResolved", "…tls…"}},
		{"protocol", func(i int) string {
			return gatewayAPI + fmt.Sprintf("kind: Gateway\nmetadata: {name: protocol-%d, namespace: bad}\nspec: {gatewayClassName: fairlead, listeners: [{name: odd, port: %d, protocol: example.com/odd}]}\n", i, 1+random.IntN(60000))
		}, "Gateway", condition{"Accepted", "False", "ListenersNotValid", "…UnsupportedProtocol…"}},
		{"policy", func(i int) string {
			return fmt.Sprintf("apiVersion: fairlead.dev/v1alpha1\nkind: RoutePolicy\nmetadata: {name: policy-%d, namespace: bad}\nspec: {targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: gone-%d}], addresses: {allow: [10.0.0.0/8]}}\n", i, i)
		}, "RoutePolicy", condition{"Accepted", "False", "TargetNotFound", "…"}},
		{"secret", func(i int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: secret-%d, namespace: bad}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n", i, garbage, garbage)
		}, "", condition{}},
	}
}

// cost is what a plane has done since it started, and what it holds.
type cost struct {
	translations, changes, writes, failed, queued, cpu, heap float64
	rss                                                      int
}

func (c cost) since(b cost) string {
	return fmt.Sprintf("%.0f changes in %.0f translations, %.0f status writes (%.0f failed), %.1f s of CPU, RSS %d MB (before: %d)",
		c.changes-b.changes, c.translations-b.translations, c.writes-b.writes, c.failed-b.failed, c.cpu-b.cpu, c.rss>>20, b.rss>>20)
}

// costs reads the plane's metrics.
func (s *site) costs(ctx context.Context) (c cost, err error) {
	body, err := s.plane.Metrics(ctx)
	if err != nil {
		return c, err
	}
	defer func() { _ = body.Close() }()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "#") {
			continue
		}
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 {
			text = lines.Text()[i+1:]
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		switch {
		case name == "fairlead_plane_translate_seconds_count":
			c.translations = v
		case name == "fairlead_plane_changes_total":
			c.changes = v
		case name == "fairlead_plane_status_writes_queued":
			c.queued = v
		case name == "go_memstats_heap_alloc_bytes":
			c.heap = v
		case name == "process_cpu_seconds_total":
			c.cpu = v
		case strings.HasPrefix(name, "fairlead_plane_status_writes_total"):
			if strings.Contains(name, `"written"`) {
				c.writes += v
			} else if strings.Contains(name, `"error"`) {
				c.failed += v
			}
		}
	}
	if c.rss, err = rss(s.plane.Process.Pid()); err != nil {
		return c, err
	}
	return c, lines.Err()
}

// rss is the memory of a process, in bytes.
func rss(p lab.Pid) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.ID))
	if err != nil {
		return 0, err
	}
	var size, resident int
	if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
		return 0, err
	}
	return resident * os.Getpagesize(), nil
}

// calm waits until nothing waits to be written and nothing was written for a while.
func (s *site) calm(t *testing.T) cost {
	t.Helper()
	var last cost
	same := 0
	s.awaitLong(t, "the plane to be calm", func(ctx context.Context) error {
		c, err := s.costs(ctx)
		if err != nil {
			return err
		}
		if c.queued > 0 || c.writes != last.writes || c.changes != last.changes || c.translations > last.translations+1 {
			last, same = c, 0
			return fmt.Errorf("%.0f statuses wait", c.queued)
		}
		if same++; same < 10 {
			return errors.New("it is calm for a short time only")
		}
		return nil
	})
	return last
}

// awaitLong is await with as much patience as thousands of objects need.
func (s *site) awaitLong(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	var err error
	for range 3 {
		if err = s.Await(t.Context(), what, try); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// TestManyBadObjects has several writers write a mixture of bad objects of every kind, as
// many as FAIRLEAD_BAD_OBJECTS says. Each says what is wrong with it;
// statuses are written about once for each; good hosts are served all the while, and a
// route that comes in the middle too; afterwards nothing is left.
func TestManyBadObjects(t *testing.T) {
	n := 500
	if text := os.Getenv("FAIRLEAD_BAD_OBJECTS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const writers = 8
	s := shared(t)
	s.namespace(t, "bad")
	s.namespace(t, "goodone")
	s.apply(t, service("bad", "app", s.backends["os1-a"]), service("goodone", "app", s.backends["os1-a"]))
	f := s.startTraffic(t, newsHost)
	before := s.calm(t)

	random := rand.New(rand.NewPCG(1, 2))
	all := mistakes(random)
	var objects []*unstructured.Unstructured
	for i := range n {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(all[i%len(all)].manifest(i/len(all))), &u.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, u)
	}
	random.Shuffle(n, func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	began := s.Now()
	var next atomic.Int64
	var writing sync.WaitGroup
	half := make(chan struct{})
	for range writers {
		writing.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if i == n/2 {
					close(half)
				}
				u := objects[i]
				if _, err := s.api.Resource(resourceOf(u)).Namespace("bad").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
					t.Errorf("%s: %v", u.GetName(), err)
				}
			}
		})
	}
	<-half
	applied := s.Now()
	s.apply(t, httpRoute("goodone", "middle", "middle.example.com", to("app")))
	s.awaitAnswer(t, request{host: "middle.example.com"}, 200, "os1-a")
	t.Logf("a good route in the middle is served %v after kubectl began", s.Now().Sub(applied))
	writing.Wait()
	t.Logf("%d objects are written after %v", n, s.Now().Sub(began))
	after := s.calm(t)
	t.Logf("after %v it is calm: %s", s.Now().Sub(began), after.since(before))
	for i, m := range all {
		last := (n - 1 - i) / len(all)
		for _, k := range []int{0, last / 2, last} {
			name := fmt.Sprintf("bad/%s-%d", m.name, k)
			switch m.kind {
			case "":
			case "IngressRoute":
				s.awaitIngress(t, ref("IngressRoute "+name), "invalid", m.want.message)
			default:
				s.awaitConditions(t, ref(m.kind+" "+name), m.want)
			}
		}
	}
	// Once when it comes, and once more for what came later: a certificate that a Gateway
	// names, another with the same host.
	if most := float64(3*n + 200); after.writes-before.writes > most {
		t.Errorf("%.0f statuses were written for %d objects", after.writes-before.writes, n)
	}
	if after.failed > before.failed {
		t.Errorf("%.0f writes failed", after.failed-before.failed)
	}
	s.reroute(t, "goodone")

	deleted := map[schema.GroupVersionResource]bool{}
	for _, u := range objects {
		r := resourceOf(u)
		if deleted[r] {
			continue
		}
		deleted[r] = true
		if err := s.api.Resource(r).Namespace("bad").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	}
	end := s.calm(t)
	s.awaitNoProblem(t)
	t.Logf("after they are gone: %s", end.since(before))
	// The API's caches keep the last events of each kind.
	s.awaitLong(t, "memory to be given back", func(ctx context.Context) error {
		c, err := s.costs(ctx)
		if grown, most := c.heap-before.heap, float64(100<<20+n*20_000); err == nil && grown > most {
			err = fmt.Errorf("the heap is %.0f MB larger than before", grown/(1<<20))
		}
		return err
	})
	f.none(t)
}

func resourceOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	k := u.GroupVersionKind()
	plural := strings.ToLower(k.Kind) + "s"
	if strings.HasSuffix(plural, "ys") && k.Kind != "Gateway" {
		plural = strings.TrimSuffix(plural, "ys") + "ies"
	}
	return k.GroupVersion().WithResource(plural)
}

// createAll writes objects that kubectl's own checks would refuse, or warn of.
func (s *site) createAll(t *testing.T, manifests ...string) {
	t.Helper()
	for _, m := range manifests {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(m), &u.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := s.api.Resource(resourceOf(u)).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}
