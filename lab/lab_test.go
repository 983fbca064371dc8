package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What this test binary is when it is started again in place of a real program.
const (
	asOwner    = "FAIRLEAD_LAB_TEST_OWNER"    // brings up the lab of that name, says so, and waits
	asSleeper  = "FAIRLEAD_LAB_TEST_SLEEPER"  // waits until it is killed
	asStubborn = "FAIRLEAD_LAB_TEST_STUBBORN" // the same, and ignores SIGTERM
)

func TestMain(m *testing.M) {
	MaybeJanitor()
	switch {
	case os.Getenv(asOwner) != "":
		ownLab(os.Getenv(asOwner), os.Getenv("FAIRLEAD_LAB_TEST_DIR"))
	case os.Getenv(asSleeper) != "" || os.Getenv(asStubborn) != "":
		sleepForever(os.Getenv(asStubborn) != "")
	}
	os.Exit(m.Run())
}

func TestUpReachesEveryMachineAndLeavesNoTrace(t *testing.T) {
	l := up(t, Topology{Name: "trace", Machines: []MachineSpec{{Name: "a"}, {Name: "b", Addresses: 3}}})
	a, b := l.Machine("a"), l.Machine("b")
	if got, want := fmt.Sprint(b.Addrs4(), b.Addrs6()), "[10.77.2.1 10.77.2.2 10.77.2.3] [fd77::2:1 fd77::2:2 fd77::2:3]"; got != want {
		t.Errorf("addresses of b are %s, want %s", got, want)
	}
	for _, addr := range append(b.Addrs4(), b.Addrs6()...) {
		if got := echo(t, a, b, addr); got != a.Addr4().String() && got != a.Addr6().String() {
			t.Errorf("b sees a at %s as %s", addr, got)
		}
	}
	assertNothingInHostNamespace(t, l)

	out, err := a.Command(t.Context(), "cat", "/proc/net/if_inet6").Output()
	if err != nil || !bytes.Contains(out, []byte("fd770000000000000000000000010001")) {
		t.Errorf("a command in a sees the addresses %q (%v), want a's", out, err)
	}
	out, err = a.Command(t.Context(), "cat", "/proc/sys/net/ipv4/tcp_congestion_control").Output()
	if used := strings.TrimSpace(string(out)); err != nil || used != "reno" {
		t.Errorf("TCP in a uses %q (%v), want the same on every host", used, err)
	}
	var exit *exec.ExitError
	if err := a.Command(t.Context(), "sh", "-c", "exit 7").Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("a command that exits with 7 gave %v", err)
	}

	state := l.State()
	down(t, l)
	assertGone(t, state)
	if _, err := a.Dial(t.Context(), "tcp", "10.77.2.1:80"); err == nil {
		t.Error("a machine of a lab that is down can still dial")
	}
}

func TestTwoLabsWithTheSameAddresses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "labs")
	topology := Topology{Machines: []MachineSpec{{Name: "a"}, {Name: "b"}}}
	topology.Name = "one"
	one := upIn(t, dir, topology)
	topology.Name = "two"
	two := upIn(t, dir, topology)
	for _, l := range []*Lab{one, two} {
		listener, err := l.Machine("b").Listen(t.Context(), "tcp", "10.77.2.1:80")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, l.Name()) })}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	for _, l := range []*Lab{one, two} {
		if got := get(t, l.Machine("a"), "http://10.77.2.1/"); got != l.Name() {
			t.Errorf("lab %s got an answer from lab %s", l.Name(), got)
		}
	}
	state := one.State()
	down(t, one)
	assertGone(t, state)
	if got := get(t, two.Machine("a"), "http://10.77.2.1/"); got != "two" {
		t.Errorf("lab two answers %q after lab one went down", got)
	}
	listed, err := List(dir)
	if err != nil || len(listed) != 1 || listed[0].Name != "two" {
		t.Errorf("labs listed: %v (%v), want two alone", listed, err)
	}
}

func TestNameInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "labs")
	topology := Topology{Name: "twice", Machines: []MachineSpec{{Name: "a"}}}
	upIn(t, dir, topology)
	if l, err := Up(t.Context(), topology, Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second lab of the same name: %v %v, want ErrInUse", l, err)
	}
}

func TestProcesses(t *testing.T) {
	l := up(t, Topology{Name: "processes", Machines: []MachineSpec{{Name: "a"}}})
	a := l.Machine("a")
	spec := ProcessSpec{Name: "sleeper", Argv: []string{os.Args[0]}, Env: []string{asSleeper + "=1"}}
	p := start(t, a, spec)
	if _, err := a.Start(t.Context(), spec); err == nil {
		t.Error("a second process of the same name was started")
	}
	found, err := a.Residents()
	if err != nil || len(found) != 1 || found[0].Pid != p.Pid() {
		t.Errorf("residents of a are %v (%v), want process %v", found, err, p.Pid())
	}
	if recorded := l.State().Processes; len(recorded) != 1 || recorded[0].Pid != p.Pid() || !recorded[0].Running() {
		t.Errorf("recorded are %v, want running process %v", recorded, p.Pid())
	}
	if err := p.Stop(t.Context(), time.Minute); err != nil {
		t.Errorf("stop: %v", err)
	}
	p = start(t, a, spec) // the name is free again
	p.Kill9()
	if p.Running() || p.Pid().Alive() {
		t.Error("a killed process is alive")
	}

	stubborn := start(t, a, ProcessSpec{Name: "stubborn", Argv: []string{os.Args[0]}, Env: []string{asStubborn + "=1"}})
	if err := stubborn.Stop(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("stopping a process that ignores SIGTERM: %v, want that it was killed", err)
	}
	if stubborn.Pid().Alive() {
		t.Error("the stubborn process is alive")
	}
	left := start(t, a, spec)
	state := l.State()
	down(t, l)
	assertGone(t, state)
	if left.Running() {
		t.Error("a process outlived its lab")
	}
}

// A process that escaped its parent and is on no record goes with its lab.
func TestDownFindsUnrecordedProcesses(t *testing.T) {
	l := up(t, Topology{Name: "escaped", Machines: []MachineSpec{{Name: "a"}}})
	cmd := l.Machine("a").Command(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asSleeper+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, out)
	pid, err := PidOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	down(t, l)
	if pid.Alive() {
		t.Error("a process in a machine of the lab is still there")
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
}

func TestKilledOwnerIsSweptByTheJanitor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "labs")
	owner, state := startOwner(t, dir, "orphan")
	kill9(t, owner)
	if err := state.Janitor.wait(deadline(t)); err != nil {
		t.Fatalf("the janitor does not end: %v", err)
	}
	assertGone(t, state)
}

func TestInterruptedOwnerIsSwept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "labs")
	owner, state := startOwner(t, dir, "interrupted")
	if err := owner.Process.Signal(unix.SIGINT); err != nil { // the default: it dies of it
		t.Fatal(err)
	}
	_ = owner.Wait()
	if err := state.Janitor.wait(deadline(t)); err != nil {
		t.Fatalf("the janitor does not end: %v", err)
	}
	assertGone(t, state)
}

func TestKilledJanitorIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "labs")
	owner, state := startOwner(t, dir, "janitorless")
	if err := state.Janitor.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for ctx := deadline(t); ; {
		now, err := Read(dir, state.Name)
		if err == nil && now.Janitor != state.Janitor {
			state = now
			break
		}
		pause(ctx, t)
	}
	kill9(t, owner)
	if err := state.Janitor.wait(deadline(t)); err != nil {
		t.Fatalf("the new janitor does not end: %v", err)
	}
	assertGone(t, state)
}

// With owner and janitor killed at once, the next lab of the name sweeps.
func TestStaleLabIsSweptByTheNextUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "labs")
	owner, stale := startOwner(t, dir, "stale")
	stopped(t, owner) // it must not replace its janitor
	if err := stale.Janitor.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kill9(t, owner)
	if left, err := Leftovers(stale); err != nil || len(left) == 0 {
		t.Fatalf("left over are %v (%v), want the whole lab", left, err)
	}
	l := upIn(t, dir, Topology{Name: "stale", Machines: []MachineSpec{{Name: "a"}}})
	for _, p := range stale.Processes {
		if p.Running() {
			t.Errorf("process %v of the stale lab runs on", p.Pid)
		}
	}
	state := l.State()
	if state.ID == stale.ID {
		t.Error("the new lab has the old one's id")
	}
	down(t, l)
	assertGone(t, state)
}

func TestDestroy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "labs")
	if err := Destroy(t.Context(), "nothing", time.Minute, Options{Dir: dir}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("destroy a lab that is not there: %v, want ErrNotExist", err)
	}
	owner, state := startOwner(t, dir, "destroyed")
	reaped := make(chan error, 1)
	go func() { reaped <- owner.Wait() }()
	if err := Destroy(t.Context(), "destroyed", time.Minute, Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := <-reaped; err == nil {
		t.Error("the owner ended as if nobody had asked it to")
	}
	if err := state.Janitor.wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	assertGone(t, state)

	// Owner and janitor are gone already: only the sweep is left to do.
	owner, state = startOwner(t, dir, "destroyed")
	stopped(t, owner)
	if err := state.Janitor.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kill9(t, owner)
	if err := Destroy(t.Context(), "destroyed", time.Minute, Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	assertGone(t, state)
}

func TestOpenedLab(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "labs")
	_, state := startOwner(t, dir, "opened")
	l, err := Open("opened", Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := echo(t, l.Machine("a"), l.Machine("b"), l.Machine("b").Addr6()); got != "fd77::1:1" {
		t.Errorf("b sees a as %s", got)
	}
	if _, err := l.Machine("a").Start(t.Context(), ProcessSpec{Name: "x", Argv: []string{"true"}}); !errors.Is(err, ErrNotOwner) {
		t.Errorf("start in an opened lab: %v, want ErrNotOwner", err)
	}
	if err := l.Down(t.Context()); !errors.Is(err, ErrNotOwner) {
		t.Errorf("down of an opened lab: %v, want ErrNotOwner", err)
	}
	if left, err := Leftovers(state); err != nil || len(left) == 0 {
		t.Errorf("the lab is gone: %v (%v)", left, err)
	}
	if _, err := Open("nothing", Options{Dir: dir}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open a lab that is not there: %v, want ErrNotExist", err)
	}
}

func TestRecordedMountsAndPinsGoWithTheLab(t *testing.T) {
	l := up(t, Topology{Name: "recorded", Machines: []MachineSpec{{Name: "a"}}})
	point := t.TempDir()
	if err := l.RecordMount(point); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("lab-test", point, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	for path, record := range map[string]func(string) error{point: l.RecordMount, "/": l.RecordMount, "/etc": l.RecordPin, "/sys/fs/bpf": l.RecordPin, "/sys/fs/bpf/../x": l.RecordPin} {
		if err := record(path); !errors.Is(err, ErrInvalid) {
			t.Errorf("recording %s: %v, want ErrInvalid", path, err)
		}
	}
	state := l.State()
	if left, err := Leftovers(state); err != nil || !strings.Contains(strings.Join(left, "\n"), "mount "+point) {
		t.Errorf("left over are %v (%v), want the mount among them", left, err)
	}
	down(t, l)
	assertGone(t, state)
}

func TestUpFailsWholeWhenCancelled(t *testing.T) {
	supported(t)
	dir := filepath.Join(t.TempDir(), "labs")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := Up(ctx, Topology{Name: "cancelled", Machines: []MachineSpec{{Name: "a"}}}, Options{Dir: dir})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("up with a cancelled context: %v %v", l, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the labs' directory is still there: %v", err)
	}
}

// The rest is what the tests above stand on.

func supported(t *testing.T) {
	t.Helper()
	if err := Supported(); err != nil {
		t.Skip(err)
	}
}

func up(t *testing.T, topology Topology) *Lab {
	t.Helper()
	return upIn(t, filepath.Join(t.TempDir(), "labs"), topology)
}

func upIn(t *testing.T, dir string, topology Topology) *Lab {
	t.Helper()
	supported(t)
	l, err := Up(t.Context(), topology, Options{Dir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func down(t *testing.T, l *Lab) {
	t.Helper()
	if err := l.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, m *Machine, spec ProcessSpec) *Process {
	t.Helper()
	p, err := m.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for ctx := deadline(t); ; pause(ctx, t) { // it speaks once its signal handling stands
		if raw, err := os.ReadFile(p.Log()); err == nil && bytes.HasSuffix(raw, []byte(fmt.Sprintf("ready %d\n", p.Pid().ID))) {
			return p
		}
	}
}

// deadline bounds waiting, so that a hang is a failure and not a test timeout.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func pause(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-ctx.Done():
		t.Fatal("it does not come about")
	case <-time.After(5 * time.Millisecond):
	}
}

// echo returns the address as which the server at addr in b sees a client in a.
func echo(t *testing.T, a, b *Machine, addr netip.Addr) string {
	t.Helper()
	listener, err := b.Listen(t.Context(), "tcp", netip.AddrPortFrom(addr, 8080).String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = io.WriteString(w, host)
	})}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	return get(t, a, "http://"+listener.Addr().String()+"/")
}

func get(t *testing.T, m *Machine, url string) string {
	t.Helper()
	resp, err := m.HTTPClient().Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func assertGone(t *testing.T, s State) {
	t.Helper()
	left, err := Leftovers(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		t.Errorf("left over: %s", l)
	}
}

func assertNothingInHostNamespace(t *testing.T, l *Lab) {
	t.Helper()
	s := l.State()
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && (s.Net4.Contains(ip.Unmap()) || s.Net6.Contains(ip)) {
			t.Errorf("the host has the lab's address %s", ip)
		}
	}
	for _, m := range s.Machines {
		if _, err := netlink.LinkByName(m.Name); err == nil {
			t.Errorf("the host has a link called %s", m.Name)
		}
	}
	if _, err := netlink.LinkByName("segment"); err == nil {
		t.Error("the host has the lab's bridge")
	}
}

func awaitLine(t *testing.T, r io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("the process says nothing: %v", err)
	}
	return line
}

func startOwner(t *testing.T, dir, name string) (*exec.Cmd, State) {
	t.Helper()
	supported(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asOwner+"="+name, "FAIRLEAD_LAB_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := Destroy(context.Background(), name, 0, Options{Dir: dir}); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	s := State{}
	if err := json.Unmarshal([]byte(awaitLine(t, out)), &s); err != nil {
		t.Fatal(err)
	}
	s.dir = filepath.Join(dir, name)
	if len(s.Processes) != 1 || !s.Processes[0].Running() || !s.Janitor.Alive() {
		t.Fatalf("the owner's lab is not whole: %+v", s)
	}
	return cmd, s
}

func kill9(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// stopped suspends the process and returns once it is.
func stopped(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for ctx := deadline(t); ; pause(ctx, t) {
		if _, state, err := stat(cmd.Process.Pid); err == nil && state == 'T' {
			return
		}
	}
}

func ownLab(name, dir string) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l, err := Up(context.Background(), Topology{Name: name, Machines: []MachineSpec{{Name: "a"}, {Name: "b"}}}, Options{Dir: dir})
	if err != nil {
		fail(err)
	}
	if _, err := l.Machine("a").Start(context.Background(), ProcessSpec{Name: "stubborn", Argv: []string{os.Args[0]}, Env: []string{asOwner + "=", asStubborn + "=1"}}); err != nil {
		fail(err)
	}
	raw, err := json.Marshal(l.State())
	if err != nil {
		fail(err)
	}
	fmt.Printf("%s\n", raw)
	select {}
}
