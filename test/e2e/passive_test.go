package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/backend"
	"fairlead.dev/lab/rig"
)

// backendRow is a backend of a frontend as `fairlead backends` shows it.
func (s *site) backendRow(t *testing.T, of string, backend netip.AddrPort) (v1.BackendStatus, error) {
	t.Helper()
	status, out, errs := s.run(t, s.plane.Machine, "backends", of, "-o", "json")
	if status != 0 {
		return v1.BackendStatus{}, errors.New(errs)
	}
	var rows []v1.BackendStatus
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(r v1.BackendStatus) bool { return r.Address == backend })
	if i < 0 {
		return v1.BackendStatus{}, fmt.Errorf("%s is not among the backends of %s", backend, of)
	}
	return rows[i], nil
}

// ejectors are the machines whose proxies hold a backend for failed.
func ejectors(r v1.BackendStatus) (names []string) {
	for _, s := range r.Says {
		if s.Passive {
			names = append(names, s.Machine)
		}
	}
	return names
}

// TestProxiesHaveAVote has a backend whose health page is well and whose answers are 500: the
// proxies of two machines take it out. One alone changes nothing for others; the two are a
// majority against it, so that a third machine, which never saw it fail, and the load
// balancers of its Service do without. It comes back everywhere when the proxies have it
// back.
func TestProxiesHaveAVote(t *testing.T) {
	s := newLab(t, "passive", plane, edge1, edge2, lab.MachineSpec{Name: "edge-3", Role: lab.RoleEdge}, os1, client)
	if err := s.start(t.Context(), rig.PlaneOptions{}); err != nil {
		t.Fatal(err)
	}
	m := s.Lab.Machine(os1.Name)
	bad, good := at(m, 0, 9200), at(m, 1, 9200)
	var failing atomic.Bool
	serveAt(t, m, bad, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(backend.NameHeader, "bad")
		if failing.Load() && r.URL.Path != "/health" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	serveAt(t, m, good, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(backend.NameHeader, "good") })

	const host = "passive.example.com"
	vip := s.Lab.Machine(edge1.Name).Addr4().As4()
	vip[2], vip[3] = 200, 16
	l4 := netip.AddrFrom4(vip)
	const check = "{type: HTTP, path: /health, interval: 500ms, timeout: 400ms, rise: 1, fall: 2}"
	s.namespace(t, "team")
	s.apply(t, rig.PoolManifest("flat", []string{l4.String() + "/32"}, "announce: L2", "assign: OnRequest"),
		strings.Replace(service("team", "web", bad, good), "  clusterIP: None\n", "  type: LoadBalancer\n  loadBalancerClass: fairlead.dev/l4\n  allocateLoadBalancerNodePorts: false\n", 1),
		ingressRoute("team", "web", host, "{match: /, services: [{name: web, port: 80, healthCheck: {path: /health, intervalSeconds: 1, timeoutSeconds: 1, unhealthyThresholdCount: 2, healthyThresholdCount: 1}}]}"),
		policy("LoadBalancerPolicy", "team", "web", "Service web", "healthCheck: "+check),
		// Out for long enough that a busy machine sees all that follows.
		policy("BackendPolicy", "team", "web", "Service web", "outlierDetection: {consecutiveErrors: 2, interval: 1s, ejectionTime: 40s, maxEjectedPercent: 100}"))
	s.kubectl(t, "annotate", "service", "-n", "team", "web", "fairlead.dev/address-pool=flat")
	s.awaitIngress(t, ref("IngressRoute team/web"), "valid", "valid IngressRoute")
	frontend := "tcp://" + netip.AddrPortFrom(l4, 80).String()
	row := func(what string, is func(v1.BackendStatus) error) {
		t.Helper()
		s.await(t, what, func(context.Context) error {
			r, err := s.backendRow(t, frontend, bad.Address)
			if err != nil {
				return err
			}
			if err := is(r); err != nil {
				return fmt.Errorf("%w: %+v", err, r)
			}
			return nil
		})
	}
	well := func(r v1.BackendStatus) error {
		if r.Health != v1.Healthy || r.Weight == 0 || len(r.Says) < 3 {
			return errors.New("it is not well")
		}
		return nil
	}
	row("three machines to find it well", func(r v1.BackendStatus) error { return errors.Join(well(r), none(ejectors(r))) })
	s.awaitAnswer(t, request{host: host}, 200, "bad")
	s.awaitAnswer(t, request{host: host}, 200, "good")
	s.awaitAnswerOf(t, "the VIP", request{at: l4, host: host}, 200, "bad")

	failing.Store(true)
	hurt := func(edge string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.ask(ctx, edge, request{host: host})
			}
		})
		return func() { cancel(); done.Wait() }
	}
	first := hurt(edge1.Name)
	row("one proxy's vote", func(r v1.BackendStatus) error {
		if !slices.Equal(ejectors(r), []string{edge1.Name}) {
			return errors.New("others vote")
		}
		return well(r)
	})
	s.awaitAnswerOf(t, "the VIP", request{at: l4, host: host}, 500, "bad") // one alone changes nothing
	second := hurt(edge2.Name)
	row("two proxies to outvote the third machine", func(r v1.BackendStatus) error {
		if !slices.Equal(ejectors(r), []string{edge1.Name, edge2.Name}) || r.Health != v1.Unhealthy || r.Weight != 0 {
			return errors.New("it is not out")
		}
		return nil
	})
	s.await(t, "the third machine to do without", func(ctx context.Context) error {
		for range 20 {
			if a, err := s.ask(ctx, "edge-3", request{host: host}); err != nil || a.backend != "good" {
				return fmt.Errorf("it answers %s: %w", a, err)
			}
		}
		return nil
	})
	s.await(t, "the load balancers to do without", func(ctx context.Context) error {
		for range 40 {
			if a, err := s.ask(ctx, "the VIP", request{at: l4, host: host}); err != nil || a.backend != "good" {
				return fmt.Errorf("it answers %s: %w", a, err)
			}
		}
		return nil
	})
	_, wide, _ := s.run(t, s.plane.Machine, "backends", frontend, "-o", "wide")
	if !strings.Contains(wide, "its proxy sees requests fail") || !strings.Contains(wide, "unhealthy (2 of 3)") {
		t.Errorf("`fairlead backends -o wide` does not say who says so:\n%s", wide)
	}

	first()
	second()
	failing.Store(false)
	s.awaitLong(t, "its return", func(context.Context) error {
		r, err := s.backendRow(t, frontend, bad.Address)
		return errors.Join(err, well(r), none(ejectors(r)))
	})
	s.awaitAnswerOf(t, "the VIP", request{at: l4, host: host}, 200, "bad")
	s.awaitAnswer(t, request{host: host}, 200, "bad")
}

// none is an error where there is somebody.
func none(names []string) error {
	if len(names) > 0 {
		return fmt.Errorf("%v hold it for failed", names)
	}
	return nil
}
