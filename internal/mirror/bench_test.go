package mirror

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// The scale of a large plane: 160 upstreams with 125 services each, of 5 endpoints each.
const benchUpstreams, benchServices, benchEndpoints = 160, 125, 5

func benchName(u int) string { return fmt.Sprintf("up%03d", u) }

func benchList(u int) []*model.UpstreamService {
	var list []*model.UpstreamService
	for i := range benchServices {
		var endpoints []string
		for e := range benchEndpoints {
			endpoints = append(endpoints, fmt.Sprintf("10.%d.%d.%d", u, i, e+1))
		}
		list = append(list, app(fmt.Sprintf("team%02d/app%03d", i%20, i), endpoints...))
	}
	return list
}

// benchWorld has all upstreams, listed and stored.
func benchWorld(b *testing.B) *world {
	var namespaces []string
	for i := range 20 {
		namespaces = append(namespaces, fmt.Sprintf("team%02d", i))
	}
	w := newWorld(b, namespaces...)
	for u := range benchUpstreams {
		w.set(benchName(u))
	}
	for u := range benchUpstreams {
		w.list(benchName(u), benchList(u)...)
	}
	w.settle()
	return w
}

// BenchmarkStart is a plane that starts: it is told of what is stored, and all upstreams list the same.
func BenchmarkStart(b *testing.B) {
	w := benchWorld(b)
	lists := make([][]*model.UpstreamService, benchUpstreams)
	for u := range lists {
		lists[u] = benchList(u)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.m = New()
		for k, o := range w.api {
			w.m.Stored(snapshot.Change{Key: k, Object: o})
		}
		for u := range benchUpstreams {
			w.set(benchName(u))
		}
		w.m.Known()
		w.m.Take()
		for u := range benchUpstreams {
			w.m.Replace(benchName(u), lists[u], w.now)
		}
		if _, writes := w.m.Take(); len(writes) > 0 {
			b.Fatalf("it writes %d objects", len(writes))
		}
	}
}

// BenchmarkSweep is a complete list of every upstream without a change.
func BenchmarkSweep(b *testing.B) {
	w := benchWorld(b)
	lists := make([][]*model.UpstreamService, benchUpstreams)
	for u := range lists {
		lists[u] = benchList(u)
	}
	b.ReportAllocs()
	for b.Loop() {
		for u := range benchUpstreams {
			w.m.Replace(benchName(u), lists[u], w.now)
		}
		if _, writes := w.m.Take(); len(writes) > 0 {
			b.Fatalf("it writes %d objects", len(writes))
		}
	}
}

// BenchmarkChange is one endpoint that comes or goes, from the source's word to what is in effect and written.
func BenchmarkChange(b *testing.B) {
	w := benchWorld(b)
	list := benchList(7)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		next := *list[n%benchServices]
		next.Slices = []model.UpstreamSlice{next.Slices[0]}
		next.Slices[0].Endpoints = next.Slices[0].Endpoints[:benchEndpoints-1-(n/benchServices)%2]
		w.m.Put(benchName(7), w.now, &next)
		w.m.Advance(w.now)
		changes, writes := w.m.Take()
		if len(changes) != 1 || len(writes) != 1 {
			b.Fatalf("%d changes and %d writes", len(changes), len(writes))
		}
		k := changes[0].Key
		stored := w.m.slices[k.Name].DeepCopy()
		Merge(stored, writes[0].Wanted)
		w.m.Stored(snapshot.Change{Key: k, Object: stored})
		w.m.Take()
	}
}

// BenchmarkOthers is what happens again and again although nothing of an upstream changed: Services and namespaces of
// others, statuses, and the clock.
func BenchmarkOthers(b *testing.B) {
	w := benchWorld(b)
	for name, f := range map[string]func(){
		"Advance": func() { w.m.Advance(w.now.Add(time.Second)) },
		"Orphans": func() { w.m.Orphans() },
		"States": func() {
			for u := range benchUpstreams {
				w.m.State(benchName(u), 16)
			}
		},
		"ForeignService": func() {
			o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team01", Name: "theirs"}}
			k := keyOfObject(o)
			w.m.Stored(snapshot.Change{Key: k, Object: o})
			w.m.Stored(snapshot.Change{Key: k})
			w.m.Take()
		},
		"Namespace": func() {
			k := snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: "new"}}
			w.m.Stored(snapshot.Change{Key: k, Object: namespace("new")})
			w.m.Stored(snapshot.Change{Key: k})
		},
		"Use": func() { w.m.Use(nil) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
