package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A plane that fails must not take its machine's Envoy along: what ends an agent
// drains Envoy.
func TestFailedPlaneLeavesTheAgentAlone(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	user, stop := context.WithCancel(context.Background())
	defer stop()
	plane, fail := context.WithCancel(user)
	fail()
	ended := make(chan struct{})
	err := outlive(user, plane, log, func(ctx context.Context) error {
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Fatal("the agent was ended with the plane")
	default:
	}
	stop()
	<-ended
}

// Ctrl-C waits for the agent, and an agent's own failure is everybody's.
func TestAgentEndsWithItsUser(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	user, stop := context.WithCancel(context.Background())
	plane, fail := context.WithCancel(user)
	defer fail()
	drained := errors.New("drained")
	stop()
	if err := outlive(user, plane, log, func(ctx context.Context) error { <-ctx.Done(); return drained }); !errors.Is(err, drained) {
		t.Fatalf("Ctrl-C: %v", err)
	}
	broken := errors.New("broken")
	if err := outlive(context.Background(), context.Background(), log, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("failure: %v", err)
	}
}

// A first start waits for the plane; an agent with something to serve waits for nobody.
func TestAgentWaitsForItsFirstPlane(t *testing.T) {
	starting := errors.New("starting")
	asked := 0
	ready := func(context.Context) error {
		if asked++; asked < 3 {
			return starting
		}
		return nil
	}
	dir := t.TempDir()
	for _, empty := range []string{dir, filepath.Join(dir, "missing")} {
		asked = 0
		if err := awaitPlane(t.Context(), empty, ready); err != nil || asked != 3 {
			t.Fatalf("first start: %v after %d questions, want 3", err, asked)
		}
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if err := awaitPlane(over, dir, func(context.Context) error { return starting }); !errors.Is(err, context.Canceled) {
		t.Fatalf("Ctrl-C: %v", err)
	}
	// What a start leaves that did not join.
	for _, name := range []string{"lock", filepath.Join("identity", "pending.key")} {
		writeFile(t, filepath.Join(dir, name), "x")
	}
	asked = 0
	if err := awaitPlane(t.Context(), dir, ready); err != nil || asked != 3 {
		t.Fatalf("after a start that did not join: %v after %d questions, want 3", err, asked)
	}
	writeFile(t, filepath.Join(dir, "state"), "something")
	asked = 0
	if err := awaitPlane(t.Context(), dir, ready); err != nil || asked != 0 {
		t.Fatalf("later start: %v after %d questions, want none", err, asked)
	}
}

// A run directory that cannot be made is said at once, and not when an API has been started
// for nothing.
func TestRunDirectoryThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"/proc/nowhere/run", filepath.Join(file, "run")} {
		for _, verb := range [][]string{{"up", "--data-dir", filepath.Join(dir, "plane")}, {"agent", "--plane", "127.0.0.1:1"}} {
			_, err := execute(append(verb, "--run-dir", run)...)
			if err == nil || !strings.Contains(err.Error(), "make the run directory: ") || !strings.HasSuffix(err.Error(), "(--run-dir chooses another)") {
				t.Errorf("fairlead %s --run-dir %s says %v", verb[0], run, err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "plane")); err == nil {
		t.Error("the API was started")
	}
}

// What is balanced in the kernel does not depend on a proxy: an agent goes on without one where
// it remembers a state, and where it is told to.
func TestWithoutEnvoy(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"run", "first"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	writeFile(t, filepath.Join("before", "state"), "something")
	f := &agentFlags{role: roleEdge, envoy: "/nope", runDir: "run", dataDir: "before"}
	if err := f.findEnvoy(log); err != nil || !strings.Contains(said.String(), "envoy not found") {
		t.Errorf("an agent that remembers a state: %v, and it says %q", err, said.String())
	}
	writeFile(t, filepath.Join("first", "lock"), "x")
	f.dataDir = "first"
	if err := f.findEnvoy(log); err == nil || !strings.Contains(err.Error(), "--envoy none") {
		t.Errorf("a start that did not join leaves a lock, and the next one says %v", err)
	}
	said.Reset()
	f.envoy = noEnvoy
	if err := f.findEnvoy(log); err != nil || said.Len() > 0 {
		t.Errorf("--envoy none: %v, and it says %q", err, said.String())
	}
	// One that runs would go on with what this agent relays to it, and nobody watched it.
	lock, err := os.Create(filepath.Join("run", "envoy.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	envoy := exec.Command("sleep", "1000")
	envoy.ExtraFiles = []*os.File{lock} // as an Envoy has it
	if err := envoy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = envoy.Process.Kill()
		_ = envoy.Wait()
	}()
	if err := f.findEnvoy(log); err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Errorf("--envoy none beside an Envoy: %v", err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What cannot be Envoy is said at once, and not when an API has been started for nothing.
func TestEnvoyThatCannotBeRun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("README.md", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{
		{"up", "--data-dir", "plane", "--agent-data-dir", "agent", "--agent-console-address", "127.0.0.1:0", "--console-address", "127.0.0.1:0"},
		{"agent", "--plane", "127.0.0.1:1", "--data-dir", "agent", "--console-address", "127.0.0.1:0"},
	} {
		for envoy, says := range map[string]string{
			"/nope":       "envoy not found: stat /nope: no such file or directory: install it",
			"./README.md": "envoy not found: " + filepath.Join(dir, "README.md") + " is not an executable file",
			"README.md":   "for ./README.md, give its path",
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // for one that starts
			root := newRoot()
			root.SetArgs(append(verb, "--run-dir", "run", "--envoy", envoy))
			err := root.ExecuteContext(ctx)
			cancel()
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("fairlead %s --envoy %s says %v", verb[0], envoy, err)
			}
		}
	}
	if _, err := os.Stat("plane"); err == nil {
		t.Error("the API was started")
	}
}

// Each line of an error says who speaks, once.
func TestComplaints(t *testing.T) {
	var out strings.Builder
	cause := errors.New("mkdir /run/fairlead: read-only file system")
	complain(&out, errors.Join(cause, fmt.Errorf("serve: %w", errors.Join(cause, errors.New("it ended")))))
	want := "fairlead: mkdir /run/fairlead: read-only file system\nfairlead: serve: mkdir /run/fairlead: read-only file system\nfairlead: it ended\n"
	if out.String() != want {
		t.Errorf("it says\n%swant\n%s", out.String(), want)
	}
	// What went wrong while it stopped comes before the cause, also if both say the same.
	out.Reset()
	complain(&out, fmt.Errorf("agent: %w (run as root)", ended(cause, cause, nil, errors.New("stop the API: etcd did not stop"))))
	want = "fairlead: agent: mkdir /run/fairlead: read-only file system\nfairlead: stop the API: etcd did not stop\nfairlead: mkdir /run/fairlead: read-only file system (run as root)\n"
	if out.String() != want {
		t.Errorf("it says\n%swant\n%s", out.String(), want)
	}
}
