package uml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// modules that the guest of these tests loads.
var modules = []string{"veth", "ip_vs_mh"}

func TestMain(m *testing.M) {
	if Inside() {
		Finish(m.Run())
	}
	os.Exit(m.Run())
}

// boot runs one test of this binary inside.
func boot(t *testing.T, test string, o Options) (int, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a PID namespace")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	var out strings.Builder
	var err error
	if o.Binary, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	o.Args, o.Modules, o.Dir = []string{"-test.v", "-test.run=^" + test + "$"}, modules, t.TempDir()
	o.Line = func(line string) { fmt.Fprintln(&out, line) }
	status, err := Run(ctx, o)
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return status, out.String()
}

// TestGuest is what runs inside; outside it has nothing to say.
func TestGuest(t *testing.T) {
	if os.Getpid() != 1 {
		return
	}
	for _, file := range []string{"/proc/net/ip_vs", "/proc/modules"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("guest: %s: %s\n", file, strings.Fields(string(text))[0])
	}
	if err := os.WriteFile("/uml-was-here", nil, 0o600); err == nil {
		t.Error("the root is writable")
	}
	if out, err := exec.Command("/proc/self/exe", "-test.run=^$").CombinedOutput(); err != nil {
		t.Errorf("start a process: %v: %s", err, out)
	}
}

func TestGuestFails(t *testing.T) {
	if os.Getpid() == 1 {
		t.Error("as it should")
	}
}

func TestRun(t *testing.T) {
	for name, shim := range map[string]bool{"plain": false, "with-shim": true} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("cc"); err != nil && shim {
				return // no compiler here: only hosts with AMX need one
			}
			status, out := boot(t, "TestGuest", Options{Shim: shim})
			if status != 0 || !strings.Contains(out, "--- PASS: TestGuest") || !strings.Contains(out, "guest: /proc/net/ip_vs: IP") {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
}

func TestRunTellsOfFailures(t *testing.T) {
	status, out := boot(t, "TestGuestFails", Options{})
	if status == 0 || !strings.Contains(out, "as it should") {
		t.Errorf("status %d\n%s", status, out)
	}
}

// TestRunEnds with its context, and leaves no process.
func TestRunEnds(t *testing.T) {
	if os.Getpid() == 1 {
		fmt.Println("guest: waiting")
		select {}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: a PID namespace")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err = Run(ctx, Options{
		Binary: binary, Args: []string{"-test.run=^TestRunEnds$"}, Modules: modules, Dir: dir,
		Line: func(line string) {
			if line == "guest: waiting" {
				cancel()
			}
		},
	})
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline"); err == nil && strings.Contains(string(line), "uml_dir="+dir) {
			t.Errorf("process %s is left: %s", p.Name(), line)
		}
	}
}
