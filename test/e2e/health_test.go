package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// TestDeadBackendsGetNoRequests kills a backend in three ways: its process is stopped and
// takes connections that it never answers, is killed, or leaves its port. Once an edge does
// without it, that edge never asks it again until it is back. So it is without a plane:
// each of two edges checks everything.
func TestDeadBackendsGetNoRequests(t *testing.T) {
	s := newLab(t, "health", plane, edge1, edge2, os1, client)
	if err := s.start(t.Context(), rig.PlaneOptions{}); err != nil {
		t.Fatal(err)
	}
	const host = "mortal.example.com"
	good := s.backends["os1-b"]
	victim := rig.Backend{Name: "victim", Cluster: client.Name, Address: netip.AddrPortFrom(s.Lab.Machine(client.Name).Addr4(), good.Address.Port())}
	p := s.serveVictim(t, victim)
	s.namespace(t, "health")
	s.apply(t, service("health", "app", good, victim), ingressRoute("health", "mortal", host,
		"{match: /, services: [{name: app, port: 80, healthCheck: {path: /status.html, intervalSeconds: 1, timeoutSeconds: 1, unhealthyThresholdCount: 2, healthyThresholdCount: 1}}]}"))
	s.awaitIngress(t, ref("IngressRoute health/mortal"), "valid", "valid IngressRoute")
	alive := func() {
		t.Helper()
		s.awaitAnswer(t, request{host: host}, 200, victim.Name)
		s.awaitAnswer(t, request{host: host}, 200, good.Name)
	}
	dead := func(how string) {
		t.Helper()
		for _, edge := range s.edges() {
			ask := func(ctx context.Context) error {
				a, err := s.ask(ctx, edge, request{host: host, patience: 5 * time.Second})
				if err == nil && a.status != 200 {
					err = fmt.Errorf("it answers %d %s", a.status, a.body)
				}
				return err
			}
			const asks = 30 // the backends take turns
			s.await(t, edge+" to do without the backend that was "+how, func(ctx context.Context) error {
				for range asks {
					if err := ask(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			for i := range 10 * asks {
				if err := ask(t.Context()); err != nil {
					t.Errorf("%s, %s: request %d after it did without: %v", how, edge, i, err)
				}
			}
		}
	}
	for _, plane := range []string{"with a plane", "without a plane"} {
		alive()
		if plane == "without a plane" {
			s.plane.Process.Kill9()
			<-s.plane.Process.Done()
		}
		if err := p.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		dead("stopped " + plane)
		if err := p.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		alive()
		p.Kill9()
		<-p.Done()
		dead("killed " + plane)
		p = s.serveVictim(t, victim)
		alive()
		if err := p.Stop(t.Context(), stopTime); err != nil {
			t.Fatal(err)
		}
		dead("taken from its port " + plane)
		p = s.serveVictim(t, victim)
	}
	s.startPlane(t)
	alive()
}

// serveVictim runs a backend of its own process.
func (s *site) serveVictim(t *testing.T, b rig.Backend) *lab.Process {
	t.Helper()
	p, err := s.Lab.Machine(b.Cluster).Start(t.Context(), lab.ProcessSpec{
		Name: b.Name, Argv: []string{s.Binary, "lab", "backend", "--serve", b.Name + "=" + b.Address.String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
