package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
	"fairlead.dev/internal/source/kube"
)

// patience is how long a test waits for what must happen. No test passes or fails by speed.
const patience = 60 * time.Second

// childKey makes this test binary an API server.
const childKey = "FAIRLEAD_UPSTREAM_CHILD"

type childSpec struct {
	Dir  string
	Port uint16
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(childKey); spec != "" {
		if err := serve(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve is an API server until its input ends.
func serve(text string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := embedded.Start(context.Background(), embedded.Config{DataDir: spec.Dir, Port: spec.Port, Log: log, DiskReserve: 1})
	if err != nil {
		return err
	}
	fmt.Println(s.Address().Port())
	_, _ = io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.Stop(ctx)
}

// cluster is an API server, and a listener in front of it whose connections can be cut.
type cluster struct {
	t      *testing.T
	dir    string
	port   uint16
	cmd    *exec.Cmd
	stdin  io.Closer
	client kubernetes.Interface // past the listener
	config clientcmdapi.Config  // through the listener

	mu     sync.Mutex
	cut    bool
	conns  map[net.Conn]bool
	listen net.Listener
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	// etcd's socket has a short path only.
	dir, err := os.MkdirTemp("", "upstream-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cluster{t: t, dir: filepath.Join(dir, "data"), conns: map[net.Conn]bool{}}
	c.start()
	t.Cleanup(c.kill)
	direct, err := clientcmd.LoadFromFile(filepath.Join(c.dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	rc, err := clientcmd.NewDefaultClientConfig(*direct, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	rc.QPS = -1
	if c.client, err = kubernetes.NewForConfig(rc); err != nil {
		t.Fatal(err)
	}
	if c.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.listen.Close()
		c.setCut(true)
	})
	go c.accept()
	c.config = *direct
	for _, k := range c.config.Clusters {
		k.Server = "https://" + c.listen.Addr().String()
	}
	return c
}

func (c *cluster) start() {
	c.t.Helper()
	spec, err := json.Marshal(childSpec{c.dir, c.port})
	if err != nil {
		c.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.cmd = exec.Command(exe)
	c.cmd.Env = append(os.Environ(), childKey+"="+string(spec))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		c.t.Fatalf("the API server has not started: %v", err)
	}
	if _, err := fmt.Sscan(line, &c.port); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends the API server without a warning.
func (c *cluster) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

func (c *cluster) accept() {
	for {
		conn, err := c.listen.Accept()
		if err != nil {
			return
		}
		go c.relay(conn)
	}
}

func (c *cluster) relay(conn net.Conn) {
	defer conn.Close()
	if !c.keep(conn) {
		return
	}
	up, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.port))
	if err != nil {
		return
	}
	defer up.Close()
	if !c.keep(up) {
		return
	}
	go func() {
		_, _ = io.Copy(up, conn)
		_ = up.Close()
	}()
	_, _ = io.Copy(conn, up)
}

func (c *cluster) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return false
	}
	c.conns[conn] = true
	return true
}

// setCut cuts all connections and refuses others, or lets them pass again.
func (c *cluster) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		for conn := range c.conns {
			_ = conn.Close()
		}
		c.conns = map[net.Conn]bool{}
	}
}

// kubeconfig is that of the administrator, changed.
func (c *cluster) kubeconfig(change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	c.t.Helper()
	k := c.config.DeepCopy()
	if change != nil {
		ctx := k.Contexts[k.CurrentContext]
		change(k.Clusters[ctx.Cluster], k.AuthInfos[ctx.AuthInfo])
	}
	b, err := clientcmd.Write(*k)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// follow runs a source of the cluster until the test ends.
func (c *cluster) follow(change func(*kube.Config)) *sink {
	c.t.Helper()
	s := &sink{have: map[string]*model.UpstreamService{}, news: make(chan struct{})}
	config := kube.Config{Name: "up01", Kubeconfig: c.kubeconfig(nil), Sink: s, Log: slog.New(slog.DiscardHandler), Allow: cloud.Allow{Loopback: true}}
	if change != nil {
		change(&config)
	}
	source, err := kube.New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		source.Run(ctx)
		close(done)
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// sink notes what it is given.
type sink struct {
	mu       sync.Mutex
	news     chan struct{}
	have     map[string]*model.UpstreamService
	replaced int
	puts     int
	contact  error
	told     bool
}

func (s *sink) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.news)
	s.news = make(chan struct{})
}

func (s *sink) Replace(all []*model.UpstreamService) {
	s.change(func() {
		s.replaced++
		s.have = map[string]*model.UpstreamService{}
		for _, u := range all {
			s.have[u.Key.String()] = u
		}
	})
}

func (s *sink) Put(all ...*model.UpstreamService) {
	s.change(func() {
		s.puts += len(all)
		for _, u := range all {
			s.have[u.Key.String()] = u
		}
	})
}

func (s *sink) Remove(keys ...model.UpstreamKey) {
	s.change(func() {
		for _, k := range keys {
			delete(s.have, k.String())
		}
	})
}

func (s *sink) Contact(err error) { s.change(func() { s.contact, s.told = err, true }) }

// wait waits until what was given is as it must be.
func (s *sink) wait(t *testing.T, what string, good func() error) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		err, news := good(), s.news
		s.mu.Unlock()
		if err == nil {
			return
		}
		select {
		case <-news:
		case <-timer.C:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// services waits until there are exactly these services, each with its ready addresses: "a/one=10.0.0.1,10.0.0.2".
func (s *sink) services(t *testing.T, what string, want ...string) {
	t.Helper()
	s.wait(t, what, func() error {
		got := map[string]bool{}
		for key, u := range s.have {
			var addresses []string
			for _, p := range u.Slices {
				for _, e := range p.Endpoints {
					if e.Ready {
						addresses = append(addresses, e.Address.String())
					}
				}
			}
			got[key+"="+strings.Join(addresses, ",")] = true
		}
		for _, w := range want {
			if !got[w] {
				return fmt.Errorf("there is no %s in %v", w, got)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("there are %v, want %v", got, want)
		}
		return nil
	})
}

// hears waits until the sink is told of a reason; empty: that the upstream answers.
func (s *sink) hears(t *testing.T, reason string) {
	t.Helper()
	s.wait(t, "contact", func() error {
		switch {
		case !s.told:
			return errors.New("nothing was told")
		case (reason == "") != (s.contact == nil), s.contact != nil && cloud.ReasonOf(s.contact) != reason:
			return fmt.Errorf("told %s: %w", cloud.ReasonOf(s.contact), s.contact)
		}
		return nil
	})
}

func (s *sink) lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaced
}
