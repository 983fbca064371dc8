package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

// resume asks for clusters as an Envoy does that has one of another version.
func (e *asker) resume() {
	e.t.Helper()
	e.send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "edge-1"}, TypeUrl: string(typeCluster), InitialResourceVersions: map[string]string{"c1": "newer"},
	})
}

// wants receives the next response and looks whether it brings the cluster as in a change.
func (e *asker) wants(c delta.Change) {
	e.t.Helper()
	e.next()
	if got := e.has[key{typeCluster, c.Name}]; got != c.Resource.Version {
		e.t.Errorf("cluster %s came as %q, want %q", c.Name, got, c.Resource.Version)
	}
}

// forgetful is a machine whose agent has ended, with a state of revision 1/1.
func forgetful(t *testing.T) (*machineRig, *plane) {
	t.Helper()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	_, stop := m.start()
	c, _ := p.call()
	c.must(t, whole(t, at(1, 1), 1)...)
	stop()
	return m, p
}

// TestDamagedMemoryIsWithheld from a living Envoy until the plane has spoken, also by
// the next agent, which finds a file that was made whole again; a new Envoy is given it
// at once.
func TestDamagedMemoryIsWithheld(t *testing.T) {
	t.Parallel()
	m, p := forgetful(t)
	m.withholdTime = time.Nanosecond // which is for memories that may be right
	path := filepath.Join(m.config.DataDir, "state")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(good[:len(good):len(good)], "half a record"...), 0o600); err != nil {
		t.Fatal(err)
	}
	a, stop := m.start()
	p.call() // it says nothing
	dialRelay(t, m).resume()
	eventually(t, "it is withheld", func() bool { return strings.Contains(a.Status().Withheld, "the stored one is older") })
	if err := a.Readyz(t.Context()); err != nil {
		t.Errorf("an Envoy that lives on does not count: %v", err)
	}
	fresh := dialRelay(t, m)
	fresh.ask(typeCluster)
	fresh.wants(gatetest.Cluster(t, "c1", "s1", 1))
	stop()

	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	a, stop = m.start()
	c, _ := p.call()
	e := dialRelay(t, m)
	e.resume()
	eventually(t, "it is withheld again", func() bool { return strings.Contains(a.Status().Withheld, "the stored one is older") })
	c.must(t, whole(t, at(1, 3), 3)...)
	e.wants(gatetest.Cluster(t, "c1", "s1", 3))
	stop()

	// Now the newest is remembered.
	a, _ = m.start()
	p.call()
	e = dialRelay(t, m)
	e.resume()
	e.wants(gatetest.Cluster(t, "c1", "s1", 3))
	if got := a.Status().Withheld; got != "" {
		t.Errorf("status still says %q", got)
	}
}

// TestMemoryIsWithheldForAWhile: an agent that was killed may have lost its last
// moments. The plane ends the wait, or the time.
func TestMemoryIsWithheldForAWhile(t *testing.T) {
	t.Parallel()
	m, p := forgetful(t)
	m.withholdTime = time.Hour
	a, stop := m.start()
	c, _ := p.call()
	e := dialRelay(t, m)
	e.resume()
	eventually(t, "it is withheld", func() bool { return strings.Contains(a.Status().Withheld, "1h0m0s at most") })
	c.must(t, responseOf(t, at(1, 2), gatetest.Cluster(t, "c1", "s1", 2)))
	if a.Status().Withheld == "" {
		t.Error("half a state ended the wait")
	}
	c.must(t, responseOf(t, at(1, 2), checkpointAt(t, at(1, 2))))
	e.wants(gatetest.Cluster(t, "c1", "s1", 2))
	// An Envoy that comes back has what this agent gave it.
	e = dialRelay(t, m)
	e.resume()
	e.wants(gatetest.Cluster(t, "c1", "s1", 2))
	stop()

	m.withholdTime = time.Millisecond
	m.start()
	p.call()
	e = dialRelay(t, m)
	e.resume()
	e.wants(gatetest.Cluster(t, "c1", "s1", 2))
}

// TestLag: while the disk is behind it is marked, and until a whole state is on it.
func TestLag(t *testing.T) {
	dir := t.TempDir()
	k, s := keptState(t, dir, t.TempDir())
	path := filepath.Join(dir, "lag")
	k.lag = newLag(path)
	flush := func(works, marked bool) {
		t.Helper()
		if got := k.flush(); got != works {
			t.Fatalf("flush is %v: %v", got, k.healthy())
		}
		if _, err := os.Stat(path); (err == nil) != marked || newLag(path).set != marked {
			t.Fatalf("marked is not %v: %v", marked, err)
		}
	}
	receive(t, s, responseOf(t, at(1, 1), gatetest.Cluster(t, "c1", "s1", 1)))
	flush(true, false)
	receive(t, s, responseOf(t, at(1, 2), gatetest.Cluster(t, "c1", "s1", 2)))
	state := filepath.Join(dir, stateFile)
	spoil(t, k.state.file, state) // so that the whole file is written
	full(t, state+".new")
	flush(false, true)
	flush(true, true) // this may be the second agent on a full disk
	receive(t, s, responseOf(t, at(1, 3), checkpointAt(t, at(1, 3))))
	flush(true, false)
}

// TestAgentThatForgot: what is remembered is older than what Envoy runs. Envoy keeps
// that until the plane speaks; only a new one begins with what is remembered.
func TestAgentThatForgot(t *testing.T) {
	b := newBench(t)
	b.plane(
		b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""),
		gatetest.Routes(t, routesName, gatetest.Host{Name: "h0", Clusters: []string{"c"}}),
	)
	e := b.startEnvoy()
	b.applies()
	b.answers("h0", "one")
	old := b.memory.remembered()
	newer := []delta.Change{
		b.cluster("d", "s2"), b.endpoints("s2", b.backend("two")),
		gatetest.Routes(t, routesName, gatetest.Host{Name: "h0", Clusters: []string{"d"}}), gatetest.Removal(typeCluster, "c"), gatetest.Removal(typeEndpoint, "s"),
	}
	b.plane(newer...)
	b.applies()
	b.answers("h0", "two")

	b.stop()
	b.memory = &memory{target: map[key]*delta.Resource{}, good: map[key]*delta.Resource{}}
	b.memory.apply(memoryBatch(old))
	b.older = true
	b.startAgent()
	stop := b.load("h0")
	eventually(t, "Envoy waits or is given something", func() bool {
		_, body, err := b.ask("h0")
		if err != nil || body != "two" {
			t.Fatalf("Envoy was taken back: it answers %q, %v", body, err)
		}
		return b.relay.withholds() != ""
	})
	if err := b.relay.waits(); err != nil {
		t.Errorf("it is not ready: %v", err)
	}
	b.plane(newer...)
	b.applies()
	b.answers("h0", "two")
	b.unharmed(stop)

	b.stop()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b.memory = &memory{target: map[key]*delta.Resource{}, good: map[key]*delta.Resource{}}
	b.memory.apply(memoryBatch(old))
	b.startAgent()
	b.startEnvoy()
	eventually(t, "a new Envoy serves what is remembered", func() bool {
		_, body, err := b.ask("h0")
		return err == nil && body == "one"
	})
}
