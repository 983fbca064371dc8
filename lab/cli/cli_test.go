package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
	"fairlead.dev/lab/router"
)

// This test binary is fairlead when its first argument is "lab", as the real one is.
func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	if len(os.Args) > 1 && os.Args[1] == "lab" {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
		defer stop()
		if err := root(os.Stdout).ExecuteContext(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "fairlead:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func root(out *os.File) *cobra.Command {
	c := &cobra.Command{Use: "fairlead", SilenceErrors: true, SilenceUsage: true}
	c.SetOut(out)
	c.AddCommand(Commands())
	return c
}

// A state that cannot be read is not told as no labs.
func TestStatusWithoutRights(t *testing.T) {
	var out bytes.Buffer
	err := showAll(t.Context(), &out, "text", nil, fmt.Errorf("read the state of lab demo: %w", fs.ErrPermission))
	if err == nil || !strings.HasSuffix(err.Error(), "run as root)") || out.Len() != 0 {
		t.Errorf("%v, besides %q", err, out.String())
	}
	if err := showAll(t.Context(), &out, "text", nil, nil); err != nil || !strings.HasPrefix(out.String(), "no labs") {
		t.Errorf("%v, %q", err, out.String())
	}
}

// fairlead runs a command line and returns what it prints.
func fairlead(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := &cobra.Command{Use: "fairlead", SilenceErrors: true, SilenceUsage: true}
	c.AddCommand(Commands())
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(t.Output())
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// succeed returns what a command line printed, or fails the test.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	out, err := fairlead(t, args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return out
}

// run starts fairlead as a process of its own, as `exec` needs it.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), os.Args[0], args...).CombinedOutput()
	return string(out), err
}

func TestUpStatusExecDown(t *testing.T) {
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("cli-%d", os.Getpid())
	t.Cleanup(func() { _ = lab.Destroy(context.Background(), name, time.Minute, lab.Options{}) })

	out, err := run(t, "lab", "up", "--name", name)
	if err != nil {
		t.Fatalf("up: %v: %s", err, out)
	}
	for _, want := range []string{"Lab " + name, "edge-2", "10.77.4.1..10.77.4.3", "fd77::5:1..fd77::5:2", "backends ("} {
		if !strings.Contains(out, want) {
			t.Errorf("up prints no %q:\n%s", want, out)
		}
	}
	if out, err := run(t, "lab", "up", "--name", name); err == nil || !strings.Contains(out, "in use") {
		t.Errorf("a second up of the name: %v: %s", err, out)
	}

	var labs []shown
	if err := json.Unmarshal([]byte(succeed(t, "lab", "status", "--name", name, "-o", "json")), &labs); err != nil {
		t.Fatal(err)
	}
	if len(labs) != 1 || labs[0].Stale || len(labs[0].Machines) != 6 || len(labs[0].Processes) != 2 || !labs[0].Processes[0].Running {
		t.Errorf("status is %+v", labs)
	}
	if out := succeed(t, "lab", "status", "-o", "yaml"); !strings.Contains(out, "name: "+name) {
		t.Errorf("status as YAML:\n%s", out)
	}
	if _, err := fairlead(t, "lab", "status", "-o", "xml"); err == nil {
		t.Error("status -o xml was accepted")
	}

	// The terminal's command runs in the machine, and its status is the command's.
	if out, err := run(t, "lab", "exec", "--name", name, "client", "--", "cat", "/proc/net/if_inet6"); err != nil || !strings.Contains(out, "fd770000000000000000000000010001") {
		t.Errorf("exec: %v: %s", err, out)
	}
	if out, err := run(t, "lab", "exec", "--name", name, "os1", "sh", "-c", "echo $FAIRLEAD_MACHINE; exit 5"); out != "os1\n" || err == nil || err.Error() != "exit status 5" {
		t.Errorf("exec: %v: %s", err, out)
	}
	if out, err := run(t, "lab", "exec", "--name", name, "nobody", "true"); err == nil || !strings.Contains(out, `no machine "nobody"`) {
		t.Errorf("exec in a machine that is not there: %v: %s", err, out)
	}

	// The backends answer with their names, over both families.
	l, err := lab.Open(name, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for url, want := range map[string]string{"http://10.77.4.3:8080/": "k8s1-c\n", "http://[fd77::5:2]:8080/": "os1-b\n"} {
		resp, err := l.Machine("client").HTTPClient().Get(url)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(resp.Body)
		_ = resp.Body.Close()
		if body.String() != want {
			t.Errorf("%s answers %q, want %q", url, body.String(), want)
		}
	}

	if out := succeed(t, "lab", "down", "--name", name); !strings.Contains(out, name+" was removed") {
		t.Errorf("down says %q", out)
	}
	if left, err := lab.Leftovers(l.State()); err != nil || len(left) > 0 {
		t.Errorf("left over: %v (%v)", left, err)
	}
	if out := succeed(t, "lab", "down", "--name", name); !strings.Contains(out, "does not exist") {
		t.Errorf("a second down says %q", out)
	}
	for _, args := range [][]string{{"lab", "status", "--name", name}, {"lab", "exec", "--name", name, "client", "true"}} {
		if out, err := run(t, args...); err == nil || !strings.Contains(out, "does not exist: create it") {
			t.Errorf("%v without the lab: %v: %s", args, err, out)
		}
	}
}

func TestUpWithARouter(t *testing.T) {
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	for _, kind := range router.Kinds() {
		name := fmt.Sprintf("cli-%s-%d", kind, os.Getpid())
		t.Cleanup(func() { _ = lab.Destroy(context.Background(), name, time.Minute, lab.Options{}) })
		out, err := run(t, "lab", "up", "--name", name, "--router", string(kind))
		if err != nil {
			t.Fatalf("up: %v: %s", err, out)
		}
		for _, want := range []string{"edges 10.77.0.0/16 and fd77::/64, clients 10.78.0.0/16", "10.77.7.1 10.78.7.1", "router (" + string(kind) + ")", "NEIGHBOUR"} {
			if !strings.Contains(out, want) {
				t.Errorf("up prints no %q:\n%s", want, out)
			}
		}
		var labs []shown
		if err := json.Unmarshal([]byte(succeed(t, "lab", "status", "--name", name, "-o", "json")), &labs); err != nil {
			t.Fatal(err)
		}
		if len(labs) != 1 || len(labs[0].Routers) != 1 || labs[0].Routers[0].Kind != kind || labs[0].Routers[0].Error != "" {
			t.Errorf("status is %+v", labs)
		}
		l, err := lab.Open(name, lab.Options{})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := l.Machine("client").HTTPClient().Get("http://[fd77::5:2]:8080/") // through the router
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		l.Close()
		succeed(t, "lab", "down", "--name", name)
		if left, err := lab.Leftovers(l.State()); err != nil || len(left) > 0 {
			t.Errorf("left over: %v (%v)", left, err)
		}
	}
	if out, err := run(t, "lab", "up", "--router", "cisco"); err == nil || !strings.Contains(out, "bird frr") {
		t.Errorf("up with a router that there is not: %v: %s", err, out)
	}
}

func TestUpThatIsInterruptedLeavesNothing(t *testing.T) {
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("cli-int-%d", os.Getpid())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := up(ctx, name, noRouter); err == nil {
		t.Error("an interrupted up succeeded")
	}
	// The keeper is gone; its janitor, if it came that far, is about to be.
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(lab.DefaultDir, name)); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("the lab's directory stays")
		}
	}
}

func TestBackendCommandLine(t *testing.T) {
	for args, says := range map[string]string{
		"":                          "required",
		"--serve x":                 "NAME=ADDRESS:PORT",
		"--serve =127.0.0.1:0":      "NAME=ADDRESS:PORT",
		"--serve a=127.0.0.1:99999": "invalid port",
	} {
		if _, err := fairlead(t, append([]string{"lab", "backend"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("lab backend %s: %v, want an error that says %q", args, err, says)
		}
	}
}
