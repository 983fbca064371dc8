package kube

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/model"
)

// state is all that was given, as text, without its times.
func state(have map[model.UpstreamKey]*model.UpstreamService) string {
	var lines []string
	for k, u := range have {
		lines = append(lines, fmt.Sprintf("%s: %v %v %v %v %v", k, u.Labels, u.Annotations, u.Ports, u.Slices, u.Refused))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// randomService is one of a few forms of a Service.
func randomService(key string, n int) *service {
	o := newService(key)
	switch n % 5 {
	case 1:
		o.Labels = map[string]string{"app": "x"}
	case 2:
		o.Spec.Ports[0].Port = 81
	case 3:
		o.Spec.Type = "ExternalName"
	case 4:
		o.Labels = map[string]string{"fairlead.dev/upstream": "x"}
	}
	return convertService(o)
}

// randomSlice is one of a few forms of an EndpointSlice; its service is one of three.
func randomSlice(key string, n int) *slice {
	o := newSlice(key, fmt.Sprintf("s%d", n%3), fmt.Sprintf("10.0.0.%d", n/3%4+1))
	if n%7 == 0 {
		o.AddressType = "FQDN"
	}
	return convertSlice(o)
}

// Any sequence of events and lists gives, in the end, what one list gives; nothing is given that is as before, and
// nothing before the lists are complete.
func FuzzTable(f *testing.F) {
	for seed := range uint64(64) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 3*(20+r.IntN(200)))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		tab := newTable(time.Now)
		services, parts := tab.add(""), tab.add("")
		allServices, allParts := map[model.UpstreamKey]*service{}, map[model.UpstreamKey]*slice{}
		have := map[model.UpstreamKey]*model.UpstreamService{}
		give := func() {
			g := tab.take()
			if g.whole {
				have = map[model.UpstreamKey]*model.UpstreamService{}
			} else if len(g.put)+len(g.removed) > 0 && (!services.read || !parts.read) {
				t.Errorf("given before the lists were read: %+v", g)
			}
			for _, u := range g.put {
				if old := have[u.Key]; old != nil && old.Same(u) {
					t.Errorf("%s was given again as it was", u.Key)
				}
				have[u.Key] = u
			}
			for _, k := range g.removed {
				if have[k] == nil {
					t.Errorf("%s was removed and not there", k)
				}
				delete(have, k)
			}
		}
		for ; len(ops) >= 3; ops = ops[3:] {
			key := model.UpstreamKey{Scope: string('a' + rune(ops[1]%2)), Name: fmt.Sprintf("s%d", ops[1]/2%3)}
			n := int(ops[2])
			switch ops[0] % 8 {
			case 0, 1:
				s := randomService(key.String(), n)
				allServices[key] = s
				tab.putService(services, key, s)
			case 2:
				delete(allServices, key)
				tab.putService(services, key, nil)
			case 3, 4:
				s := randomSlice(key.String(), n)
				allParts[key] = s
				tab.putSlice(parts, key, s)
			case 5:
				delete(allParts, key)
				tab.putSlice(parts, key, nil)
			case 6: // something happened while we were away, and a list follows
				if n%2 == 0 {
					delete(allServices, key)
					tab.replaceServices(services, maps.Clone(allServices))
				} else {
					allParts[key] = randomSlice(key.String(), n)
					tab.replaceSlices(parts, maps.Clone(allParts))
				}
			case 7:
				give()
			}
		}
		tab.replaceServices(services, maps.Clone(allServices))
		tab.replaceSlices(parts, maps.Clone(allParts))
		give()
		if again := tab.take(); again.whole || len(again.put)+len(again.removed) > 0 {
			t.Errorf("given again: %+v", again)
		}

		fresh := newTable(time.Now)
		fresh.replaceServices(fresh.add(""), allServices)
		fresh.replaceSlices(fresh.add(""), allParts)
		wanted := map[model.UpstreamKey]*model.UpstreamService{}
		for _, u := range fresh.take().put {
			wanted[u.Key] = u
		}
		if got, want := state(have), state(wanted); got != want {
			t.Errorf("in the end:\n%s\nwant:\n%s", got, want)
		}
		if size, want := services.size+parts.size, fresh.lists[0].size+fresh.lists[1].size; size != want {
			t.Errorf("the size is %d, want %d", size, want)
		}
	})
}

// Whatever happens to a cluster and to the connections to it: some time after it has become quiet, everything is as in
// the cluster, and without need nothing was ever taken away.
func TestAnyHistory(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { anyHistory(t, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func anyHistory(t *testing.T, r *rand.Rand) {
	f := newFakeAPI(t)
	f.paged, f.pages = r.IntN(2) == 0, r.IntN(3)
	f.put(newService("a/stays"), newSlice("a/stays-1", "stays", "10.0.0.9"))
	scoped := r.IntN(2) == 0
	same := func(c *Config) {
		if scoped {
			c.Namespaces.Include = []string{"a", "b"}
		}
	}
	s := f.follow(t, same)
	for range 60 {
		key := fmt.Sprintf("%c/s%d", 'a'+rune(r.IntN(2)), r.IntN(4))
		switch r.IntN(14) {
		case 0, 1:
			o := newService(key)
			o.Spec.Ports[0].Port = int32(80 + r.IntN(2))
			f.put(o)
		case 2:
			f.remove("services", key)
		case 3, 4, 5:
			f.put(newSlice(key, fmt.Sprintf("s%d", r.IntN(4)), fmt.Sprintf("10.0.0.%d", 1+r.IntN(4))))
		case 6:
			f.remove("endpointslices", key)
		case 7:
			f.breakWatches()
		case 8:
			f.setDown(true)
		case 9:
			f.setDown(false)
		case 10:
			f.compact()
		case 11:
			f.setFault(func(w http.ResponseWriter, _ *http.Request) bool {
				refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "no leader")
				return true
			})
		case 12:
			f.setFault(nil)
		case 13:
			time.Sleep(time.Duration(r.Int64N(int64(time.Minute))))
		}
		if r.IntN(2) == 0 {
			time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
		}
	}
	f.setDown(false)
	f.setFault(nil)
	time.Sleep(2 * time.Minute)
	if heard := s.heard(); len(heard) == 0 || heard[len(heard)-1] != nil {
		t.Errorf("the last contact is not well: %v", heard)
	}
	if strings.Contains(s.took(), "remove a/stays") {
		t.Error("a service was removed that was always there")
	}
	fresh := f.follow(t, same)
	time.Sleep(time.Minute)
	if got, want := s.text(), fresh.text(); got != want {
		t.Errorf("in the end:\n%s\nwant:\n%s", got, want)
	}
}
