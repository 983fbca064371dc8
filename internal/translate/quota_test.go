package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

const quotaGround = ourClass + `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec: {gatewayClassName: fairlead, listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}
`

// measuredApp is a Service that asks for metrics of each backend, with a route of the same name that asks for series of its own.
func measuredApp(namespace, name string, day int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s, creationTimestamp: "2026-01-%02[3]dT00:00:00Z", annotations: {fairlead.dev/metrics: backend}}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[2]s, namespace: %[1]s, creationTimestamp: "2026-01-%02[3]dT00:00:00Z", annotations: {fairlead.dev/metrics: route}}
spec:
  parentRefs: [{name: edge, namespace: edge}]
  hostnames: [%[2]s.%[1]s.example.com]
  rules: [{backendRefs: [{name: %[2]s, port: 80}]}]
`, namespace, name, day)
}

// quotaWorld is followed by a Translator.
type quotaWorld struct {
	t  *testing.T
	s  *snapshot.Snapshot
	tr *Translator
}

func (w *quotaWorld) add(text string) {
	w.t.Helper()
	before := w.s.Keys()
	readYAML(w.t, w.s, []byte(text))
	w.apply(slices.DeleteFunc(w.s.Keys(), func(k snapshot.Key) bool { return slices.Contains(before, k) }))
}

func (w *quotaWorld) remove(namespace, name string) {
	w.t.Helper()
	var keys []snapshot.Key
	for _, k := range w.s.Keys() {
		if k.Name == (snapshot.Name{Namespace: namespace, Name: name}) {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		w.s.Delete(k)
	}
	w.apply(keys)
}

// apply brings the result up to date, which is the same as one from nothing.
func (w *quotaWorld) apply(keys []snapshot.Key) {
	w.t.Helper()
	w.tr.Apply(w.s, keys)
	if again := full(w.tr.config, w.s); text(again) != text(w.tr) {
		w.t.Fatalf("a plane that begins to lead differs: %s", lineDiff(text(w.tr), text(again)))
	}
}

// measured holds that these apps, as NAMESPACE/NAME, have measured groups and routes with series of their own, and that the statuses of
// all others say why they have none.
func (w *quotaWorld) measured(want ...string) {
	w.t.Helper()
	r := w.tr.result()
	for id, g := range r.Groups {
		app := strings.TrimSuffix(string(id), "/80")
		if g.Measured != slices.Contains(want, app) {
			w.t.Errorf("group %s is measured: %t", id, g.Measured)
		}
	}
	routes := 0
	for _, h := range r.VirtualHosts {
		for i := range h.Routes {
			routes++
			owner := h.Routes[i].Owner
			app := owner.Namespace + "/" + owner.Name
			has := slices.Contains(want, app)
			if h.Routes[i].Measured != has {
				w.t.Errorf("route %s has series of its own: %t", app, !has)
			}
			said := r.Statuses[model.Object{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name}].HTTPRoute.Parents[0].Conditions[1].Message
			for _, note := range []string{
				"metadata.annotations[fairlead.dev/metrics]: no series of its own: more than 4 routes ask for them, and older ones of namespace " + owner.Namespace + " have its share",
				"Service " + app + ": metadata.annotations[fairlead.dev/metrics]: backends without metrics of their own: more than 4 groups of backends ask for them, and older ones of namespace " + owner.Namespace + " have its share",
			} {
				if strings.Contains(said, note) == has {
					w.t.Errorf("the status of %s says %q", app, said)
				}
			}
		}
	}
	if routes < len(want) {
		w.t.Errorf("%d routes", routes)
	}
}

// TestNamespacesShareMeasuring holds that a namespace that asks for many metrics leaves others theirs, that its oldest ones are measured,
// and that others are as soon as there is room.
func TestNamespacesShareMeasuring(t *testing.T) {
	s := snapshot.New()
	w := &quotaWorld{t, s, full(input.Config{MeasuredGroups: 4, MeasuredRoutes: 4}, s)}
	w.add(quotaGround)
	for i := range 6 { // the newest first
		w.add(measuredApp("many", fmt.Sprintf("app-%d", 6-i), 6-i))
	}
	w.measured("many/app-1", "many/app-2", "many/app-3", "many/app-4")
	w.add(measuredApp("few", "one", 20))
	w.measured("many/app-1", "many/app-2", "many/app-3", "few/one")
	w.add(measuredApp("few", "two", 21))
	w.add(measuredApp("few", "three", 22))
	w.measured("many/app-1", "many/app-2", "few/one", "few/two")
	w.remove("many", "app-1")
	w.measured("many/app-2", "many/app-3", "few/one", "few/two")
	w.remove("few", "one")
	w.remove("few", "three")
	w.measured("many/app-2", "many/app-3", "many/app-4", "few/two")
	w.remove("many", "app-4")
	w.remove("many", "app-5")
	w.measured("many/app-2", "many/app-3", "many/app-6", "few/two")
}
