package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/etcd"
	"fairlead.dev/lab/rig"
)

// haSite is three machines, each with a member of one etcd and a plane, and two edges.
type haSite struct {
	*site
	etcd    *etcd.Cluster
	planes  []*rig.Plane
	traffic *traffic
	gone    *rig.Plane // whose machine nobody reaches, for which its own side of the network still works
	turn    int        // of the route between its backends
}

// newHA starts the planes, each with all members of etcd or with that of its own machine alone.
func newHA(t *testing.T, name string, alone bool) *haSite {
	t.Helper()
	controls := []lab.MachineSpec{{Name: "control-1", Role: lab.RolePlane}, {Name: "control-2", Role: lab.RolePlane}, {Name: "control-3", Role: lab.RolePlane}}
	s := &haSite{site: newLab(t, name, append([]lab.MachineSpec{client, edge1, edge2, os1}, controls...)...)}
	machines := s.Lab.Machines(lab.RolePlane)
	var err error
	if s.etcd, err = etcd.Start(t.Context(), clusterTools(t), filepath.Join(t.TempDir(), "etcd-pki"), machines...); err != nil {
		t.Fatal(err)
	}
	for i, m := range machines {
		// One authority for all: one kubeconfig is good at each plane's API.
		if len(s.planes) > 0 {
			dir, err := m.Dir("plane")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(s.planes[0].Dir, "pki"))); err != nil {
				t.Fatal(err)
			}
		}
		flags := s.etcd.Flags()
		if alone {
			flags = s.etcd.Flags(s.etcd.Members[i])
		}
		p, err := s.StartPlane(t.Context(), m, rig.PlaneOptions{Args: flags})
		if err != nil {
			t.Fatal(err)
		}
		s.planes = append(s.planes, p)
	}
	s.plane = s.planes[0]
	if err := s.connect(); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Lab.Machines(lab.RoleEdge) {
		a, err := s.StartAgent(t.Context(), m, s.plane, "--plane", s.planes[1].Endpoint(), "--plane", s.planes[2].Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.agents[m.Name()] = a
	}
	s.apply(t, exampleFiles(t)...)
	s.apply(t, namespace("ha"), service("ha", "a", s.backends["os1-a"]), service("ha", "b", s.backends["os1-b"]))
	s.change(t, "before anything happens")
	s.traffic = s.startTraffic(t, "ha.example.com")
	return s
}

// clusterTools is the directory with etcd in it.
func clusterTools(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("FAIRLEAD_CLUSTER"); named != "" {
		return named
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, ".tools", "cluster")
}

// leader is the plane that leads, which all planes that answer must agree on, at last.
func (s *haSite) leader(t *testing.T) (i int) {
	t.Helper()
	s.await(t, "one plane to lead", func(ctx context.Context) error {
		i = -1
		for n, p := range s.planes {
			status, err := p.Status(ctx)
			if p == s.gone || err != nil || !status.Plane.Leading {
				continue
			}
			if i >= 0 {
				return fmt.Errorf("%d and %d lead", i, n)
			}
			i = n
		}
		if i < 0 {
			return errors.New("none does")
		}
		return nil
	})
	return i
}

// change sends the route to its other backend through the API of one plane, or whichever of them
// takes it, and waits until both edges do so.
func (s *haSite) change(t *testing.T, when string) {
	t.Helper()
	began := s.Now()
	s.turn++
	name := []string{"a", "b"}[s.turn%2]
	manifest := httpRoute("ha", "app", "ha.example.com", to(name))
	var by *rig.Plane
	s.await(t, "an API to take the route "+when, func(ctx context.Context) error {
		var errs error
		for _, p := range s.planes {
			if p == s.gone || !p.Process.Running() {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := p.Apply(limited, manifest)
			cancel()
			if err == nil {
				by = p
				return nil
			}
			errs = errors.Join(errs, err)
		}
		return errs
	})
	taken := s.Now()
	s.awaitAnswer(t, request{host: "ha.example.com"}, 200, "os1-"+name)
	t.Logf("%s: a change was taken by %s after %s, and served by both edges %s later", when, by.Machine.Name(), taken.Sub(began), s.Now().Sub(taken))
}

// TestPlanesOnThreeEtcds kills the members of an etcd of three, and three planes on it, one by one
// under load: no request fails, and changes of routes go on.
func TestPlanesOnThreeEtcds(t *testing.T) {
	s := newHA(t, "ha", false)
	for _, m := range s.etcd.Members {
		m.Process.Kill9()
		s.change(t, "etcd of "+m.Machine.Name()+" is dead")
		if err := errors.Join(m.Start(t.Context()), m.AwaitHealthy(t.Context())); err != nil {
			t.Fatal(err)
		}
		s.change(t, "it is back")
	}
	for range s.planes {
		p := s.planes[s.leader(t)]
		p.Process.Kill9()
		s.change(t, "the leader on "+p.Machine.Name()+" is dead")
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.change(t, "it is back")
	}
	s.traffic.none(t)
}

// TestMachinesOfPlanesVanish takes the machines with a plane and a member of etcd away one by one, as
// when their power fails: nothing refuses a connection to them, packets only vanish.
func TestMachinesOfPlanesVanish(t *testing.T) {
	s := newHA(t, "ha-vanish", false)
	for range s.planes {
		p := s.planes[s.leader(t)]
		if err := p.Machine.SetBlackhole(true); err != nil {
			t.Fatal(err)
		}
		s.gone = p
		s.change(t, "the leader's machine "+p.Machine.Name()+" is gone")
		s.change(t, "it still is")
		if err := p.Machine.SetBlackhole(false); err != nil {
			t.Fatal(err)
		}
		s.gone = nil
		s.change(t, "it is back")
	}
	s.traffic.none(t)
}

// TestLeaderWithoutItsEtcd takes the leading plane its only member of etcd: it serves on until another
// plane leads, which tells it so; its agents go there, and changes of routes go on.
func TestLeaderWithoutItsEtcd(t *testing.T) {
	s := newHA(t, "ha-cut-off", true)
	i := s.leader(t)
	m := s.etcd.Members[i]
	m.Process.Kill9()
	s.change(t, "the etcd of the leader on "+m.Machine.Name()+" is dead")
	if next := s.leader(t); next == i {
		t.Errorf("the plane on %s leads on", m.Machine.Name())
	}
	if err := errors.Join(m.Start(t.Context()), m.AwaitHealthy(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.change(t, "it is back")
	s.traffic.none(t)
}
