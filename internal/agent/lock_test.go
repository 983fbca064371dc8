package agent

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"fairlead.dev/internal/gate/gatetest"
)

// TestTwoAgentsOnOneDirectory: the second one says who is there and touches nothing.
func TestTwoAgentsOnOneDirectory(t *testing.T) {
	m, first, c, w := serving(t)
	e := dialRelay(t, m)
	e.boot(w)
	for name, change := range map[string]func(*Config, string){
		"data": func(c *Config, other string) { c.RunDir = other },
		"run":  func(c *Config, other string) { c.DataDir = other },
	} {
		config := m.config
		change(&config, t.TempDir())
		config.Rand, config.Log = rand.New(rand.NewPCG(1, 2)), slog.New(slog.DiscardHandler)
		second, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		dir := map[string]string{"data": m.config.DataDir, "run": m.config.RunDir}[name]
		wantError(t, second.Run(t.Context()), errLocked, dir, fmt.Sprintf("process %d", os.Getpid()), "stop that agent, or choose other directories")
	}
	changed := gatetest.Cluster(t, "c1", "s1", 2)
	c.must(t, responseOf(t, at(1, 2), changed))
	e.until(changed)
	if err := first.Healthz(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLockDirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.lock")
	// What a dead agent left is no lock.
	if err := os.WriteFile(path, []byte("123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := lockDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != fmt.Sprintln(os.Getpid()) {
		t.Errorf("it names %q, %v", data, err)
	}
	_, err = lockDirectory(dir)
	wantError(t, err, errLocked, dir, fmt.Sprintf("process %d:", os.Getpid()))
	// The number may be missing: the disk was full.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, err = lockDirectory(dir)
	wantError(t, err, errLocked, "with an unknown process ID")
	release()
	if release, err = lockDirectory(dir); err != nil {
		t.Fatalf("after its release: %v", err)
	}
	release()
}
