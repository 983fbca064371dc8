package openstack

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lab "fairlead.dev/lab/openstack"
)

// A poll ends although every page of it is new, and what waits to be read is bounded.
func TestPollWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		sim.Seed("team01", 3, 1)
		s := start(t, sim, adminCloud, func(c *Config) { c.SweepInterval = time.Hour })
		time.Sleep(10 * time.Second)
		n, pages := 0, 0
		sim.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("sort") == "" {
				return false
			}
			pages++
			var rows []string
			for range 2000 {
				n++
				rows = append(rows, fmt.Sprintf(`{"id":"x%d","project_id":"p","provisioning_status":"ACTIVE"}`, n))
			}
			_, _ = fmt.Fprintf(w, `{"loadbalancers":[%s],"loadbalancers_links":[{"rel":"next","href":"/?marker=x%d"}]}`, strings.Join(rows, ","), n)
			return true
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		// A poll a second, of a page each.
		if jobs := s.source.queue.waiting(); pages < 20 || pages > 100 || jobs > urgentJobs {
			t.Errorf("%d pages in a minute, %d load balancers wait", pages, jobs)
		}
		if contact, _, _ := s.state(); contact != "ok" {
			t.Errorf("contact is %s", contact)
		}
	})
}

// Load balancers that went while they were being changed are not kept.
func TestForgetPending(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := &poller{Source: &Source{now: func() time.Time { return now }}, pending: map[scope]map[string]time.Time{}, tails: map[scope]tail{}}
	for i := range 1000 {
		p.waits(scope{}, &loadBalancer{ID: fmt.Sprint(i), ProvisioningStatus: pendingDelete})
	}
	stuck := &loadBalancer{ID: "7", ProvisioningStatus: pendingUpdate}
	now = now.Add(pendingPatience - 1)
	p.forget(scope{}, nil)
	if !p.waits(scope{}, stuck) || len(p.pending[scope{}]) != 1000 {
		t.Errorf("after less than the time, %d of 1000 are left", len(p.pending[scope{}]))
	}
	now = now.Add(1)
	p.forget(scope{}, map[string]bool{"7": true})
	if p.waits(scope{}, stuck) || len(p.pending[scope{}]) != 1 {
		t.Errorf("afterwards %d are left; one is shown", len(p.pending[scope{}]))
	}
	*stuck = loadBalancer{ID: "7", ProvisioningStatus: active}
	if p.waits(scope{}, stuck) || len(p.pending[scope{}]) != 0 {
		t.Error("it is kept though it is no longer changed")
	}
}

// Jobs of load balancers that a list does not have are dropped, unless they are newer.
func TestQueueKeep(t *testing.T) {
	q := newQueue()
	for _, j := range []*job{{id: "gone", seq: 1}, {id: "gone too", seq: 1, background: true}, {id: "there", seq: 1}, {id: "newer", seq: 3}} {
		q.put(j)
	}
	q.keep(map[string]bool{"there": true}, 2)
	if q.waiting() != 2 || len(q.background) != 0 || len(q.jobs) != 2 {
		t.Errorf("left are %v", slices.Collect(maps.Keys(q.jobs)))
	}
	for _, want := range []string{"there", "newer"} {
		if j := q.take(context.Background()); j.id != want {
			t.Errorf("took %s, not %s", j.id, want)
		}
	}
}

// A load balancer that cannot be read and that no list has any more is not tried for ever.
func TestForgottenFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		sim.Seed("team01", 1, 1)
		s := start(t, sim, adminCloud, nil)
		time.Sleep(10 * time.Second)
		sim.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("sort") != "" {
				_, _ = w.Write([]byte(`{"loadbalancers":[{"id":"ghost","project_id":"p","provisioning_status":"ACTIVE"}]}`))
				return true
			}
			return answer("ghost", 500, "")(w, r) || r.URL.Query().Get("loadbalancer_id") == "ghost" && answer("", 500, "")(w, r)
		})
		time.Sleep(10 * time.Second)
		tries := 0
		sim.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if !answer("ghost", 500, "")(w, r) {
				return false
			}
			tries++
			return true
		})
		time.Sleep(10 * time.Minute)
		begun := tries
		time.Sleep(10 * time.Minute)
		if begun == 0 || tries != begun {
			t.Errorf("%d tries, then %d", begun, tries-begun)
		}
		if contact, _, _ := s.state(); contact != "ok" {
			t.Errorf("contact is %s", contact)
		}
	})
}

// Names and sessions of projects that are gone are not kept.
func TestForgottenProjects(t *testing.T) {
	s := newState(newSink(), time.Now)
	s.name([]project{{ID: "a", Name: "a"}, {ID: "b", Name: "b"}, {ID: "wanted", Name: "c"}, {ID: "known", Name: "d"}})
	s.want(&loadBalancer{ID: "w", ProjectID: "wanted"})
	s.put(&tree{loadBalancer: loadBalancer{ID: "k", ProjectID: "known", ProvisioningStatus: active}}, s.next(), time.Time{})
	s.keepNames([]project{{ID: "a"}})
	if got := slices.Sorted(maps.Keys(s.projects)); !slices.Equal(got, []string{"a", "known", "wanted"}) {
		t.Errorf("the names of %v are kept", got)
	}
	tokens := &sessions{slots: map[string]*slot{}}
	for _, id := range []string{"", "a", "b"} {
		tokens.slot(id)
	}
	tokens.keep([]view{{scope{token: "a"}}})
	if got := slices.Sorted(maps.Keys(tokens.slots)); !slices.Equal(got, []string{"", "a"}) {
		t.Errorf("the sessions of %v are kept", got)
	}
}
