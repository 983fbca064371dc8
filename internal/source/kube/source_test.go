package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

// bothWays runs a test against an API that begins watches with what there is, and one that lists in pages.
func bothWays(t *testing.T, test func(t *testing.T, f *fakeAPI)) {
	for name, paged := range map[string]bool{"streamed": false, "paged": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeAPI(t)
				if f.paged = paged; paged {
					f.pages = 2
				}
				test(t, f)
			})
		})
	}
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// listedAgain fails unless both kinds were listed twice. Two lists may be given as one.
func (s *sink) listedAgain(t *testing.T) {
	t.Helper()
	if n := s.lists(); n != 2 && n != 3 {
		t.Errorf("%d lists were given", n)
	}
}

func TestChanges(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"), newService("a/two"), newService("b/three"), newService("kube-system/dns"), newService("default/kubernetes"),
			newSlice("a/one-1", "one", "10.0.0.1"), newSlice("a/nobody", "nobody", "10.0.0.9"), newSlice("b/three-1", "three", "10.0.0.3"))
		s := f.follow(t, nil)
		moment()
		want(t, "first", s.took(), "replace a/one a/two b/three")
		want(t, "endpoints", s.endpoints("a/one"), "10.0.0.1")
		if heard := s.heard(); len(heard) != 1 || heard[0] != nil {
			t.Errorf("contacts %v", heard)
		}

		f.put(newSlice("a/one-1", "one", "10.0.0.1", "10.0.0.2"))
		moment()
		want(t, "an endpoint more", s.took(), "put a/one")
		want(t, "endpoints", s.endpoints("a/one"), "10.0.0.1 10.0.0.2")

		o := newSlice("a/one-1", "one", "10.0.0.1", "10.0.0.2")
		o.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"}
		node := "node-1"
		o.Endpoints[0].NodeName = &node
		f.put(o, newService("a/two"), newSlice("a/nobody", "nobody"))
		moment()
		want(t, "nothing that matters", s.took(), "")

		f.put(newSlice("a/one-1", "two", "10.0.0.1"))
		moment()
		want(t, "a slice of another service", s.took(), "put a/one a/two")
		want(t, "endpoints", s.endpoints("a/one"), "")
		want(t, "endpoints", s.endpoints("a/two"), "10.0.0.1")

		f.remove("services", "a/two")
		moment()
		want(t, "a service less", s.took(), "remove a/two")
		f.put(newService("a/two"))
		moment()
		want(t, "and more again", s.took(), "put a/two")
		want(t, "endpoints", s.endpoints("a/two"), "10.0.0.1")

		f.put(newService("kube-public/x"), newSlice("kube-public/x", "x", "10.0.0.1"))
		moment()
		want(t, "a namespace that is not selected", s.took(), "")
	})
}

// A connection that breaks and an API that is away are no reason to list again.
func TestPartition(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"), newService("a/two"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, nil)
		moment()
		want(t, "first", s.took(), "replace a/one a/two")
		for range 3 {
			f.setDown(true)
			time.Sleep(5 * time.Minute)
			f.remove("services", "a/two")
			f.put(newSlice("a/one-1", "one", "10.0.0.7"))
			heard := s.heard()
			if len(heard) < 10 || len(heard) > 60 {
				t.Errorf("%d attempts in five minutes", len(heard))
			}
			for _, err := range heard[1:] {
				if cloud.ReasonOf(err) != v1alpha1.ReasonUnreachable {
					t.Errorf("contact %v", err)
				}
			}
			want(t, "away", s.took(), "")
			f.asked()
			f.setDown(false)
			time.Sleep(30 * time.Second)
			back := strings.Split(s.took(), "; ") // there is no order between the two watches
			slices.Sort(back)
			want(t, "back", strings.Join(back, "; "), "put a/one; remove a/two")
			want(t, "endpoints", s.endpoints("a/one"), "10.0.0.7")
			if heard := s.heard(); len(heard) == 0 || heard[len(heard)-1] != nil {
				t.Errorf("contacts %v", heard)
			}
			asked := f.asked()
			slices.Sort(asked)
			want(t, "asked", strings.Join(slices.Compact(asked), ", "), "/api/v1/namespaces/kube-system, /api/v1/services, /api/v1/services watch, "+
				"/apis/discovery.k8s.io/v1/endpointslices, /apis/discovery.k8s.io/v1/endpointslices watch")
			if n := s.lists(); n != 1 {
				t.Errorf("%d lists were given", n)
			}
			f.put(newService("a/two"), newSlice("a/one-1", "one", "10.0.0.1"))
			moment()
			s.took()
		}
	})
}

// An upstream that was away is back as a whole with its first answer, whoever has asked.
func TestReturn(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, nil)
		moment()
		for range 5 {
			f.setDown(true)
			time.Sleep(5 * time.Minute)
			f.asked()
			f.setDown(false)
			for len(f.asked()) == 0 {
				time.Sleep(50 * time.Millisecond)
				synctest.Wait()
			}
			moment()
			if heard := s.heard(); heard[len(heard)-1] != nil {
				t.Errorf("after the first answer: %v", heard[len(heard)-1])
			}
		}
	})
}

// Versions that are compacted while we are away are listed again, once for each kind.
func TestExpired(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"), newService("a/two"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, nil)
		moment()
		f.setDown(true)
		f.remove("services", "a/two")
		f.put(newSlice("a/one-1", "one", "10.0.0.7"))
		f.compact()
		f.setDown(false)
		time.Sleep(time.Minute)
		s.listedAgain(t)
		want(t, "services", s.endpoints("a/two"), "none")
		want(t, "endpoints", s.endpoints("a/one"), "10.0.0.7")
		s.took()
		time.Sleep(20 * time.Minute)
		want(t, "later", s.took(), "")
	})
}

// Once an hour everything is read anew. Nothing has changed, and nothing is said but that.
func TestSweep(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, nil)
		time.Sleep(39 * time.Minute)
		want(t, "first", s.took(), "replace a/one")
		time.Sleep(42 * time.Minute)
		want(t, "swept", s.took(), "replace a/one; replace a/one")
		if !s.unchanged() {
			t.Error("a service that has not changed was given anew")
		}
		for _, err := range s.heard() {
			if err != nil {
				t.Errorf("contact %v", err)
			}
		}
	})
}

// A cluster that was restored from a backup has versions that it had before, for other objects.
func TestRestored(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"), newService("a/two"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, nil)
		moment()
		f.setDown(true)
		f.mu.Lock()
		delete(f.objects["services"], "a/two")
		f.rv, f.log, f.oldest = 50, nil, 50
		f.set("services", "a/old", typed(newService("a/old")))
		f.mu.Unlock()
		f.setDown(false)
		time.Sleep(time.Minute)
		s.listedAgain(t)
		want(t, "restored", s.endpoints("a/two")+" "+s.endpoints("a/old"), "none ")
		f.put(newSlice("a/old-1", "old", "10.0.0.5"))
		moment()
		want(t, "later", s.endpoints("a/old"), "10.0.0.5")
	})
}

// The watches of a restored cluster may go on without a break.
func TestRestoredBehindAProxy(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"), newService("a/two"))
		s := f.follow(t, nil)
		moment()
		f.mu.Lock()
		delete(f.objects["services"], "a/two")
		f.rv, f.log, f.oldest = 50, nil, 50
		f.mu.Unlock()
		time.Sleep(2 * time.Minute) // a bookmark has told
		want(t, "restored", s.endpoints("a/two"), "none")
	})
}

// Another cluster at the same address is read anew, even if it knows the version.
func TestAnotherCluster(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"))
		s := f.follow(t, nil)
		moment()
		f.setDown(true)
		f.mu.Lock()
		f.uid = "cluster-2"
		delete(f.objects["services"], "a/one")
		f.rv += 1000
		other := typed(newService("a/other"))
		other.SetResourceVersion("1000")
		f.objects["services"]["a/other"] = other
		f.mu.Unlock()
		f.setDown(false)
		time.Sleep(time.Minute)
		want(t, "services", s.endpoints("a/one")+s.endpoints("a/other"), "none")
		s.listedAgain(t)
	})
}

func TestOwnAPI(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"))
		s := f.follow(t, func(c *Config) { c.OwnUID = "cluster-1" })
		time.Sleep(time.Hour)
		want(t, "given", s.took(), "")
		for _, err := range s.heard() {
			if cloud.ReasonOf(err) != v1alpha1.ReasonOwnAPI {
				t.Errorf("contact %v", err)
			}
		}
		for _, path := range f.asked() {
			want(t, "asked", path, "/api/v1/namespaces/kube-system")
		}
	})
}

// A few namespaces are read one by one, so that credentials need no right beyond them. One that cannot be read does not
// keep the others from being given.
func TestNamespaces(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		forbidden := "b"
		f.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			allowed := strings.Contains(r.URL.Path, "/namespaces/a/") || strings.Contains(r.URL.Path, "/namespaces/b/")
			if allowed && (forbidden == "" || !strings.Contains(r.URL.Path, "/namespaces/"+forbidden+"/")) {
				return false
			}
			refuse(w, http.StatusForbidden, "Forbidden", "services is forbidden")
			return true
		})
		f.put(newService("a/one"), newService("b/two"), newService("c/three"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, func(c *Config) { c.Namespaces.Include = []string{"b", "a"} })
		moment()
		f.put(newService("a/late"))
		moment()
		want(t, "first", s.took(), "put a/one; put a/late")
		heard := s.heard()
		if len(heard) == 0 || cloud.ReasonOf(heard[len(heard)-1]) != v1alpha1.ReasonForbidden || !strings.Contains(heard[len(heard)-1].Error(), "of the namespace b: ") {
			t.Errorf("contacts %v", heard)
		}
		f.mu.Lock()
		forbidden = ""
		f.mu.Unlock()
		time.Sleep(time.Minute)
		if took := s.took(); !strings.HasSuffix(took, "replace a/late a/one b/two") {
			t.Errorf("allowed: %q", took)
		}
		f.put(newService("b/more"), newService("c/more"))
		moment()
		want(t, "later", s.took(), "put b/more")
	})
}

func TestSelector(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		selected := newService("a/one")
		selected.Labels = map[string]string{"expose": "yes"}
		f.put(selected, newService("a/two"), newSlice("a/one-1", "one", "10.0.0.1"), newSlice("a/two-1", "two", "10.0.0.2"))
		s := f.follow(t, func(c *Config) { c.Selector = labels.SelectorFromSet(labels.Set{"expose": "yes"}) })
		moment()
		want(t, "first", s.took(), "replace a/one")
		f.put(newService("a/one"))
		moment()
		want(t, "without the label", s.took(), "remove a/one")
		f.put(selected)
		moment()
		want(t, "with it", s.took(), "put a/one")
		want(t, "endpoints", s.endpoints("a/one"), "10.0.0.1")
	})
}

// However many events there are: that the upstream answers is told at most once a second.
func TestContacts(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		s := f.follow(t, nil)
		for i := range 1000 {
			f.put(newSlice("a/one-1", "one", fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(s.heard()); n < 9 || n > 11 {
			t.Errorf("told %d times in ten seconds", n)
		}
	})
}
