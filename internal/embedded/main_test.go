package embedded

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long a test waits for what must happen; no test passes or fails by speed.
const patience = 60 * time.Second

// childKey makes this test binary a process of its own: a server, or an etcd alone.
const childKey = "FAIRLEAD_EMBEDDED_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childKey); spec != "" {
		os.Exit(runChild(spec))
	}
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared server:", err)
		code = 1
	}
	os.Exit(code)
}

// yearsBetterPart is so long ago that a certificate made then is valid now and due for renewal.
const yearsBetterPart = int64(300 * 24 * time.Hour)

// shared is the server that most tests use: one start costs seconds.
var shared sharedServer

type sharedServer struct {
	once   sync.Once
	server *Server
	dir    string
	err    error
	log    lockedBuffer
	// behind is how far the server's clock is behind the real one, in nanoseconds.
	behind atomic.Int64
	// panicOn makes the next request of a controller with this method and path panic.
	panicOn  atomic.Pointer[string]
	panicked atomic.Int64
}

func (s *sharedServer) get(t *testing.T) *Server {
	t.Helper()
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "embedded-"); s.err != nil {
			return
		}
		s.behind.Store(yearsBetterPart)
		s.server, s.err = Start(context.Background(), Config{
			Stamp:   testStamp,
			DataDir: filepath.Join(s.dir, "data"), Log: slog.New(slog.NewTextHandler(&s.log, nil)),
			Now:             func() time.Time { return time.Now().Add(-time.Duration(s.behind.Load())) },
			wrapControllers: func(next http.RoundTripper) http.RoundTripper { return panicker{s, next} },
		})
	})
	if s.err != nil {
		t.Fatalf("start the shared server: %v\n%s", s.err, s.log.String())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the shared server:\n%s", s.log.String())
		}
	})
	return s.server
}

func (s *sharedServer) stop() error {
	if s.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.server.Stop(ctx)
	return errors.Join(err, os.RemoveAll(s.dir))
}

type panicker struct {
	s    *sharedServer
	next http.RoundTripper
}

func (p panicker) RoundTrip(r *http.Request) (*http.Response, error) {
	request := r.Method + " " + r.URL.Path
	if on := p.s.panicOn.Load(); on != nil && *on == request && p.s.panicOn.CompareAndSwap(on, nil) {
		p.s.panicked.Add(1)
		panic("a test asked for this panic: " + request)
	}
	return p.next.RoundTrip(r)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

func clientFor(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func loadKubeconfig(t *testing.T, path string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// wantError checks that err says every one of these words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// childSpec says what a child process runs.
type childSpec struct {
	Role        string // "serve", "fill", "break"
	DataDir     string
	Bind        string
	EtcdServers []string
	EtcdQuota   int64
	Timeout     time.Duration
}

// child is a running child process. It writes one line to stdout when it is ready.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *bufio.Scanner
	stderr *lockedBuffer
}

func startChild(t *testing.T, spec childSpec) *child {
	t.Helper()
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(os.Args[0]), stderr: &lockedBuffer{}}
	c.cmd.Env = append(os.Environ(), childKey+"="+string(b))
	c.cmd.Stderr = c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // an error means that it has ended, which is what is wanted
		_ = c.cmd.Wait()
		if t.Failed() {
			t.Logf("log of a child:\n%s", c.stderr.String())
		}
	})
	c.lines = bufio.NewScanner(stdout)
	return c
}

// line returns the next line that the child wrote.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child ended: %v\n%s", c.cmd.Wait(), c.stderr.String())
	}
	return c.lines.Text()
}

// serve starts a server in a child and returns it with its kubeconfig once it is ready.
func serve(t *testing.T, spec childSpec) (*child, *rest.Config) {
	t.Helper()
	spec.Role = "serve"
	c := startChild(t, spec)
	return c, loadKubeconfig(t, c.line(t))
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // the error is that it was killed
}

// stop lets the child end by itself and checks that it is content and wrote structured logs only.
func (c *child) stop(t *testing.T) {
	t.Helper()
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the child ended with %v", err)
	}
	for line := range strings.Lines(c.stderr.String()) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("the child wrote %q, which is not our log", line)
		}
	}
}

func runChild(env string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var spec childSpec
	if err := json.Unmarshal([]byte(env), &spec); err != nil {
		log.Error("read what to run", "error", err)
		return 2
	}
	var err error
	switch spec.Role {
	case "serve", "break":
		err = childServe(spec, log)
	case "fill":
		err = childFill(spec, log)
	default:
		err = fmt.Errorf("unknown role %q", spec.Role)
	}
	if err != nil {
		log.Error("child ended", "error", err)
		return 1
	}
	return 0
}

// childServe runs a server until stdin ends or the server does.
func childServe(spec childSpec, log *slog.Logger) error {
	c := Config{DataDir: spec.DataDir, EtcdServers: spec.EtcdServers, EtcdQuota: spec.EtcdQuota, StartTimeout: spec.Timeout, Log: log}
	if spec.Bind != "" {
		c.BindAddress = netip.MustParseAddr(spec.Bind)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := Start(ctx, c)
	if err != nil {
		return err
	}
	fmt.Println(s.cfg.kubeconfigPath())
	if spec.Role == "break" {
		s.store.fail(errors.New("broken by a test"))
	}
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end of stdin is the word to stop
		close(closed)
	}()
	select {
	case <-closed:
	case <-s.Done():
		return s.Err()
	}
	ctx, cancel = context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return s.Stop(ctx)
}
