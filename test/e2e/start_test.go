package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// TestKillPlaneWhileItStarts kills a plane at different moments of its first start. The
// next one begins where it was, and the last one serves.
func TestKillPlaneWhileItStarts(t *testing.T) {
	s := newLab(t, "start", plane)
	m := s.Lab.Machine(plane.Name)
	dir, err := m.Dir("plane")
	if err != nil {
		t.Fatal(err)
	}
	there := func(pattern string) func(string) bool {
		return func(string) bool {
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			return err == nil && len(found) > 0
		}
	}
	says := func(text string, times int) func(string) bool {
		return func(log string) bool { return strings.Count(log, text) >= times }
	}
	for _, moment := range []struct {
		name string
		is   func(log string) bool
	}{
		{"its first key", there("pki/*")},
		{"etcd's first file", there("etcd/member/wal/*.wal")},
		{"etcd's database", there("etcd/member/snap/db")},
		{"some definitions", says("definition installed", 4)},
		{"the authority", says("made the agents' authority", 1)},
	} {
		p, err := m.Start(t.Context(), lab.ProcessSpec{Name: "plane", Argv: []string{
			s.Binary, "plane", "--data-dir", dir, "--advertise-address", m.Addr4().String(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(p.Log())
		if err != nil {
			t.Fatal(err)
		}
		s.await(t, "the plane to come to "+moment.name, func(context.Context) error {
			log, err := os.ReadFile(p.Log())
			if err != nil {
				return err
			}
			if now := string(log[len(before):]); !moment.is(now) {
				if !p.Running() {
					return rig.Fatal(fmt.Errorf("it has ended: %s", now))
				}
				return errors.New("not yet")
			}
			return nil
		})
		p.Kill9()
	}
	if s.plane, err = s.StartPlane(t.Context(), m, rig.PlaneOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.connect(); err != nil {
		t.Fatal(err)
	}
	s.apply(t, exampleFiles(t)...)
	s.awaitIngress(t, "IngressRoute team01/team01-app", "valid", "valid IngressRoute")
	if _, err := s.plane.Token(t.Context(), "edge-9"); err != nil {
		t.Error(err)
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*.tmp*")); err != nil || len(found) > 0 {
		t.Errorf("the starts left %v (%v)", found, err)
	}
}
