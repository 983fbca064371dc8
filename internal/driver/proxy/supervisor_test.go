package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds/envoytest"
)

// patience bounds waits that are expected to succeed, on a loaded machine too.
const patience = 90 * time.Second

// records keeps what a supervisor logs.
type records struct {
	slog.Handler
	mu   sync.Mutex
	list []slog.Record
}

func (r *records) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, record)
	return nil
}

// waits are the pauses that were announced, oldest first.
func (r *records) waits() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []time.Duration
	for _, record := range r.list {
		record.Attrs(func(a slog.Attr) bool {
			if a.Key == "again_in" {
				list = append(list, a.Value.Duration())
			}
			return true
		})
	}
	return list
}

// rig is a Supervisor that runs.
type rig struct {
	t    *testing.T
	s    *Supervisor
	logs *records
	stop func() // ends Run and waits for it

	mu      sync.Mutex
	history []model.ProxyStatus
	changed chan struct{}
}

// runDir is a directory whose path leaves room for sockets. What a test leaves
// running there is ended with it.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "px")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range holders(t, dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// configure is a Config for dir with the real Envoy and a server that configures it
// with nothing. Without an Envoy the test is skipped.
func configure(t *testing.T, dir string) Config {
	t.Helper()
	binary, err := envoytest.Find()
	if err != nil {
		t.Skip(err)
	}
	socket := filepath.Join(dir, "ads.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ads := envoytest.NewADS()
	ads.Serve(l)
	t.Cleanup(ads.Close)
	return Config{Binary: binary, RunDir: dir, ADSSocket: socket, NodeID: "edge-1", Concurrency: 1, DrainTime: time.Second, Now: time.Now}
}

// script is a Config for dir with a shell script in Envoy's place.
func script(t *testing.T, dir, body string) Config {
	t.Helper()
	binary := filepath.Join(dir, "script")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return Config{
		Binary: binary, RunDir: dir, ADSSocket: filepath.Join(dir, "ads.sock"), NodeID: "edge-1",
		DrainTime: time.Second, OnStop: Drain, Now: time.Now,
	}
}

// begin runs a supervisor until stop is called or the test ends.
func begin(t *testing.T, c Config) *rig {
	t.Helper()
	r := &rig{t: t, logs: &records{Handler: slog.DiscardHandler}, changed: make(chan struct{}, 1)}
	c.Log = slog.New(enabled{r.logs})
	var err error
	if r.s, err = New(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.s.Run(ctx, r.note) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(patience):
			t.Error("run does not end")
		}
	})
	t.Cleanup(r.stop)
	return r
}

// enabled passes every level on.
type enabled struct{ *records }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }

// note is called by Run itself, so it sees every status.
func (r *rig) note() {
	r.mu.Lock()
	r.history = append(r.history, r.s.Status())
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// seen waits until the supervisor has had a status like that, and returns it.
func (r *rig) seen(what string, like func(model.ProxyStatus) bool) model.ProxyStatus {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		history := slices.Clone(r.history)
		r.mu.Unlock()
		if i := slices.IndexFunc(history, like); i >= 0 {
			return history[i]
		}
		select {
		case <-r.changed:
		case <-deadline.C:
			r.t.Fatalf("%s: never; it was %+v; envoy's log: %s", what, history, lastLines(r.s.path("envoy.log"), 0))
		}
	}
}

// ready waits for the nth start to be ready; the 0th is an adoption.
func (r *rig) ready(start uint32) int {
	r.t.Helper()
	r.seen(fmt.Sprintf("start %d is ready", start), func(st model.ProxyStatus) bool { return st.State == Ready && st.Starts == start })
	pids := holders(r.t, r.s.config.RunDir)
	if len(pids) != 1 {
		r.t.Fatalf("processes %v hold the lock", pids)
	}
	return pids[0]
}

// holders are the processes that hold the lock as an Envoy does.
func holders(t *testing.T, dir string) []int {
	t.Helper()
	lock, err := realPath(filepath.Join(dir, "envoy.lock"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && holds(pid, lock) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func wantHolders(t *testing.T, dir string, want ...int) {
	t.Helper()
	if got := holders(t, dir); !slices.Equal(got, want) {
		t.Fatalf("processes %v hold the lock, want %v", got, want)
	}
}

// gone waits until no process has the number.
func gone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

// eventually asks until the answer is yes: of what tells nobody when it changes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: never", what)
		}
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

// bystander is a process that has nothing to do with Envoy. files are its
// descriptors from 3 on.
func bystander(t *testing.T, files ...*os.File) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

// TestRunDirectoryMayBeRelative: Envoy runs in another directory than its agent, and finds
// everything all the same; so does an agent that is started in a third one.
func TestRunDirectoryMayBeRelative(t *testing.T) {
	dir := runDir(t)
	c := configure(t, dir)
	t.Chdir(filepath.Dir(dir))
	c.RunDir, c.ADSSocket = filepath.Base(dir), filepath.Join(filepath.Base(dir), "ads.sock")
	r := begin(t, c)
	first := r.seen("ready", func(st model.ProxyStatus) bool { return st.State == Ready })
	r.stop()

	t.Chdir(dir)
	c.RunDir, c.ADSSocket, c.OnStop = ".", "ads.sock", Drain
	second := begin(t, c).seen("adopted", func(st model.ProxyStatus) bool { return st.State == Ready })
	if first.Starts != 1 || second.Starts != 0 {
		t.Errorf("it was started %d times, and %d times by the next agent", first.Starts, second.Starts)
	}
}

func alive(t *testing.T, pid int) {
	t.Helper()
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || bytes.Contains(state, []byte(") Z ")) {
		t.Fatalf("process %d was ended: %s %v", pid, state, err)
	}
}

func TestRestartsAKilledEnvoy(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := configure(t, dir)
	c.OnStop = Drain
	r := begin(t, c)
	first := r.ready(1)
	wantHolders(t, dir, first)
	if st := r.s.Status(); st.Version == "" || st.RSSBytes == 0 || st.Message != "" {
		t.Errorf("a ready proxy is %+v", st)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended := r.seen("the end is told", func(st model.ProxyStatus) bool { return st.State == Backoff })
	contains(t, ended.Message, "envoy ended: signal: killed")
	second := r.ready(2)
	if second == first {
		t.Fatalf("process %d again", first)
	}
	wantHolders(t, dir, second)

	r.stop()
	gone(t, second)
	wantHolders(t, dir)
	if st := r.s.Status(); st.State != Stopped || st.Starts != 2 {
		t.Errorf("after its end it is %+v", st)
	}
}

// TestMayBeStarting: what an earlier agent started may serve, and until that is known nobody is
// told that it does not.
func TestMayBeStarting(t *testing.T) {
	t.Parallel()
	c := configure(t, t.TempDir())
	c.Log = slog.New(slog.DiscardHandler)
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); st.State != Starting {
		t.Errorf("before it has looked it says %+v", st)
	}
}

// TestTwoSupervisorsKeepOneEnvoy: two at once, as when an agent is started while an
// old one still stops, and Envoy dies under both.
func TestTwoSupervisorsKeepOneEnvoy(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := configure(t, dir)
	pair := []*rig{begin(t, c), begin(t, c)}
	old := 0
	for range 3 {
		eventually(t, "there is one, a new one", func() bool {
			now := holders(t, dir)
			if len(now) > 1 {
				t.Fatalf("processes %v hold the lock", now)
			}
			return len(now) == 1 && now[0] != old && pair[0].s.Status().State == Ready && pair[1].s.Status().State == Ready
		})
		old = holders(t, dir)[0]
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMissingBinary(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := script(t, dir, "exit 7")
	there := c.Binary
	c.Binary = filepath.Join(dir, "no-envoy")
	r := begin(t, c)
	st := r.seen("it is told", func(st model.ProxyStatus) bool { return st.State == Backoff })
	contains(t, st.Message, "envoy not found", c.Binary, "install it", "--envoy")
	if st.Starts != 0 {
		t.Errorf("%d starts of nothing", st.Starts)
	}
	// It is looked for again: installing it is enough.
	if err := os.Rename(there, c.Binary); err != nil {
		t.Fatal(err)
	}
	r.seen("it is found", func(st model.ProxyStatus) bool { return st.Starts > 0 })
}

func TestBacksOff(t *testing.T) {
	t.Parallel()
	r := begin(t, script(t, runDir(t), `echo "it began"; echo "no room for $$" >&2; exit 7`))
	st := r.seen("it backs off", func(st model.ProxyStatus) bool { return st.State == Backoff && st.Starts == 5 })
	contains(t, st.Message, "exit status 7", "its last output: ", "it began | no room for ")
	want := []time.Duration{0, backoffFirst, 2 * backoffFirst, 4 * backoffFirst}
	if got := r.logs.waits(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("it waited %v, want %v", got, want)
	}
}

// TestBackoffStartsOver: an end after a steady run is no reason to wait.
func TestBackoffStartsOver(t *testing.T) {
	t.Parallel()
	c := script(t, runDir(t), "exit 7")
	var mu sync.Mutex
	now := time.Unix(0, 0)
	c.Now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(steadyAfter)
		return now
	}
	r := begin(t, c)
	r.seen("it ended often", func(st model.ProxyStatus) bool { return st.State == Backoff && st.Starts == 5 })
	if got := r.logs.waits(); len(got) < 4 || slices.Max(got) != 0 {
		t.Errorf("it waited %v", got)
	}
}

// TestSparesBystanders: files that an Envoy of long ago left name a process that has
// its number now.
func TestSparesBystanders(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := configure(t, dir)
	c.OnStop = Drain
	pid, _ := bystander(t)
	for name, text := range map[string]string{
		"envoy.lock": fmt.Sprintln(pid),
		"envoy.json": fmt.Sprintf(`{"pid":%d,"binary":%q,"adsSocket":"elsewhere","nodeID":"edge-9"}`, pid, c.Binary),
		"admin.sock": "no socket",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := begin(t, c)
	if got := r.ready(1); got == pid {
		t.Fatal("the bystander was taken for Envoy")
	}
	r.stop()
	alive(t, pid)
}

// TestLockOfAnotherProcess: somebody has the lock who is no Envoy.
func TestLockOfAnotherProcess(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := script(t, dir, "exit 7")
	lock, err := takeLock(filepath.Join(dir, "envoy.lock"))
	if err != nil {
		t.Fatal(err)
	}
	pid, end := bystander(t, os.Stdout, lock) // under another descriptor than Envoy
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	// The note blames it.
	note := fmt.Sprintf(`{"pid":%d,"binary":%q,"adsSocket":"elsewhere","nodeID":"edge-9"}`, pid, c.Binary)
	if err := os.WriteFile(filepath.Join(dir, "envoy.json"), []byte(note), 0o600); err != nil {
		t.Fatal(err)
	}
	r := begin(t, c)
	st := r.seen("it is told", func(st model.ProxyStatus) bool { return st.State == Backoff })
	contains(t, st.Message, "envoy.lock is locked, but no envoy of this user holds it", "fuser ")
	if st.Starts != 0 {
		t.Error("an Envoy was started without the lock")
	}
	alive(t, pid)
	end()
	r.seen("it goes on once the lock is free", func(st model.ProxyStatus) bool { return st.Starts > 0 })
}

// TestLogIsBounded: what an Envoy writes while it runs is put aside, then thrown away.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := script(t, dir, fmt.Sprintf("yes 'a line of no interest' | head -c %d; exec sleep 1000", maxLog+1<<20))
	r := begin(t, c)
	log := filepath.Join(dir, "envoy.log")
	eventually(t, "the log is put aside", func() bool {
		old, err := os.Stat(log + ".1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		now, err := os.Stat(log)
		return old != nil && old.Size() == maxLog && err == nil && now.Size() <= 1<<20
	})
	// One that has no admin interface is ended too.
	pids := holders(t, dir)
	if len(pids) == 0 {
		t.Fatal("nothing runs")
	}
	r.stop()
	for _, pid := range pids {
		gone(t, pid)
	}
}

func TestBoundLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "envoy.log")
	if err := boundLog(path); err != nil {
		t.Fatalf("without a log: %v", err)
	}
	writer, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.Write(append(bytes.Repeat([]byte("x"), maxLog), "the end\n"...)); err != nil {
		t.Fatal(err)
	}
	if err := boundLog(path); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("anew\n"); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path + ".1")
	if err != nil || len(old) != maxLog || !bytes.HasSuffix(old, []byte("xthe end\n")) {
		t.Errorf("%d bytes were put aside, %v", len(old), err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != "anew\n" {
		t.Errorf("the log is %d bytes, %v", len(now), err)
	}
	if got := lastLines(path, 0); got != "anew" {
		t.Errorf("last lines: %q", got)
	}
}

// TestBoundLogWhileItGrows: what is put aside is no longer than it may be, however
// fast Envoy writes meanwhile.
func TestBoundLogWhileItGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "envoy.log")
	writer, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		chunk := bytes.Repeat([]byte("x"), 256<<10)
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, err := writer.Write(chunk); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 3 {
		_ = os.Remove(path + ".1")
		var old fs.FileInfo
		eventually(t, "it is put aside", func() bool {
			if err := boundLog(path); err != nil {
				t.Fatal(err)
			}
			old, _ = os.Stat(path + ".1")
			return old != nil
		})
		if old.Size() != maxLog {
			t.Errorf("%d bytes were put aside, want %d", old.Size(), maxLog)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
