package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/lab"
)

// TestDamagedMemory damages the state that an agent remembers, in every way that a
// power cut may, and starts the agent while there is no plane. It always starts, says
// what is wrong, and serves what it could read; the plane mends the rest.
func TestDamagedMemory(t *testing.T) {
	s := shared(t)
	s.namespace(t, "memory")
	a := s.agents[edge1.Name]
	dir, err := a.Machine.Dir("agent")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "state")
	// The last record is about this change only.
	s.reroute(t, "memory")
	s.await(t, "the last change to be on the disk", func(context.Context) error {
		raw, err := os.ReadFile(file)
		if err == nil && !bytes.Contains(raw, []byte("memory.example.com")) {
			err = errors.New("it is not")
		}
		return err
	})
	f := s.startTraffic(t, newsHost, edge2.Name)
	s.plane.Process.Kill9()
	s.killEdge(t, edge1.Name)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	flipped := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 0x55
		return b
	}
	n := len(whole)
	for _, c := range []struct {
		name    string
		content []byte
		damaged bool // and says so
		serves  bool // what can be read is enough for the examples
	}{
		{"whole", whole, false, true},
		{"last byte lost", whole[:n-1], true, true},
		{"last byte wrong", flipped(n - 1), true, true},
		{"garbage behind", append(bytes.Clone(whole), bytes.Repeat([]byte("garbage"), 100)...), true, true},
		{"zeros behind", append(bytes.Clone(whole), make([]byte, 4096)...), false, true}, // as many empty records
		{"half", whole[:n/2], true, false},
		{"wrong in the middle", flipped(n / 2), true, false},
		{"a quarter", whole[:n/4], true, false},
		{"in the first record", whole[:40], true, false},
		{"half a header", whole[:5], true, false},
		{"wrong header", flipped(1), true, false},
		{"empty", nil, true, false},
		{"other file", bytes.Repeat([]byte("something else altogether\n"), 500), true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(file, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			logged, err := os.ReadFile(a.Process.Log())
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.await(t, "the agent to answer", func(ctx context.Context) error {
				if !a.Process.Running() {
					return errors.New("it has ended")
				}
				return s.Get(ctx, a.Machine, "http://127.0.0.1:7081/healthz")
			})
			log, err := os.ReadFile(a.Process.Log())
			if err != nil {
				t.Fatal(err)
			}
			const says = `level=ERROR msg="the stored state is damaged: a running proxy keeps its configuration until a plane answers; a new proxy gets the older state that could be read"`
			if said := strings.Contains(string(log[len(logged):]), says); said != c.damaged {
				t.Errorf("the agent says that the state is damaged: %t, want %t:\n%s", said, c.damaged, log[len(logged):])
			}
			if c.serves {
				if err := a.AwaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.awaitAnswerOf(t, edge1.Name, request{host: newsHost}, 200)
			}
			if !a.Process.Running() {
				t.Error("the agent has ended")
			}
			if c.name != "other file" { // the plane meets the worst of them
				s.killEdgeIfAny(t, edge1.Name)
			}
		})
	}
	s.startPlane(t)
	s.awaitAnswer(t, request{host: newsHost}, 200)
	s.awaitAnswer(t, request{host: "memory.example.com"}, 200, "os1-a")
	s.reroute(t, "memory")
	s.awaitNoProblem(t)
	f.none(t)
}

// killEdgeIfAny kills an edge's agent and what else runs there.
func (s *site) killEdgeIfAny(t *testing.T, edge string) {
	t.Helper()
	s.agents[edge].Process.Kill9()
	s.await(t, "nothing to run on "+edge, func(context.Context) error {
		found, err := s.agents[edge].Machine.Residents()
		if err != nil || len(found) == 0 {
			return err
		}
		return errors.Join(fmt.Errorf("%+v is alive", found), killAll(found))
	})
}

func killAll(found []lab.Resident) error {
	for _, r := range found {
		if err := r.Kill9(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	return nil
}
