package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// awaitEmpty waits until nothing runs on a machine.
func (s *site) awaitEmpty(t *testing.T, m *lab.Machine) {
	t.Helper()
	s.await(t, "nothing to run on "+m.Name(), func(context.Context) error {
		found, err := m.Residents()
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("there is %+v", found)
		}
		return err
	})
}

// slowBackend is a backend that answers when it is told to.
type slowBackend struct {
	address netip.AddrPort
	got     chan struct{} // gets a token for each request that arrived
	answer  chan struct{} // closed when all may be answered
}

// startSlowBackend runs one on a machine until the test ends.
func startSlowBackend(t *testing.T, m *lab.Machine, port uint16) *slowBackend {
	t.Helper()
	b := &slowBackend{address: netip.AddrPortFrom(m.Addr4(), port), got: make(chan struct{}, 16), answer: make(chan struct{})}
	l, err := m.Listen(t.Context(), "tcp", b.address.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.got <- struct{}{}
		select {
		case <-b.answer:
			_, _ = io.WriteString(w, "at last\n")
		case <-r.Context().Done():
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return b
}

// TestStopWithDrain stops an agent that was told to drain, while a request is under
// way: it is answered, and nothing is left running.
func TestStopWithDrain(t *testing.T) {
	s := shared(t)
	s.namespace(t, "drain")
	j := &joiner{site: s, machine: s.Lab.Machine(newcomer.Name), made: 80}
	slow := startSlowBackend(t, s.Lab.Machine(os1.Name), 8099)
	s.apply(t, service("drain", "slow", rig.Backend{Name: "slow", Address: slow.address}), httpRoute("drain", "slow", "slow.example.com", to("slow")))
	args := append(j.arguments(t, newcomer.Name, j.token(t, newcomer.Name)), "--on-stop=drain", "--drain-time=20s")
	p, err := j.machine.Start(t.Context(), lab.ProcessSpec{Name: "agent", Argv: append([]string{s.Binary}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		j.end(t)
		s.kubectl(t, "delete", "machine", newcomer.Name)
	})
	s.awaitAnswerOf(t, newcomer.Name, request{host: newsHost}, 200)

	answered := make(chan error, 1)
	go func() {
		a, err := s.ask(context.WithoutCancel(t.Context()), newcomer.Name, request{host: "slow.example.com", patience: rig.Patience})
		if err == nil && a.body != "at last\n" {
			err = errors.New(a.String())
		}
		answered <- err
	}()
	select {
	case <-slow.got:
	case err := <-answered:
		t.Fatalf("the slow request was answered too early: %v", err)
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// While it drains, Envoy ends more and more connections with their next answer.
	s.await(t, "Envoy to drain", func(ctx context.Context) error {
		a, err := s.ask(ctx, newcomer.Name, request{host: newsHost})
		if err == nil && !a.closes {
			err = fmt.Errorf("it answers %s and keeps the connection", a)
		}
		return err
	})
	close(slow.answer)
	if err := <-answered; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	s.awaitEmpty(t, j.machine)
}

// TestUpAndInterrupt runs everything in one process, uses it, interrupts it, and starts
// it again.
func TestUpAndInterrupt(t *testing.T) {
	home := lab.MachineSpec{Name: "home"}
	s := newLab(t, "up", client, home, os1)
	m := s.Lab.Machine(home.Name)
	dir := func(name string) string {
		path, err := m.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	argv := []string{
		s.Binary, "up", "--name", home.Name, "--advertise-address", m.Addr4().String(),
		"--data-dir", dir("plane"), "--agent-data-dir", dir("agent"), "--run-dir", dir("run"), "--envoy", s.Envoy, "--drain-time", "2s",
		"--data-plane", "none", // its BPF objects would outlive the lab
	}
	var p *lab.Process
	up := func() {
		t.Helper()
		var err error
		if p, err = m.Start(t.Context(), lab.ProcessSpec{Name: "up", Argv: argv}); err != nil {
			t.Fatal(err)
		}
		for _, url := range []string{"http://127.0.0.1:7080/readyz", "http://127.0.0.1:7081/readyz"} {
			s.await(t, url, func(ctx context.Context) error {
				if !p.Running() {
					return rig.Fatal(errors.New("up has ended"))
				}
				return s.Get(ctx, m, url)
			})
		}
	}
	up()
	kubectl := m.Command(t.Context(), s.Kubectl, "--kubeconfig", filepath.Join(dir("plane"), "admin.kubeconfig"), "apply", "-f", "-")
	kubectl.Stdin = strings.NewReader(strings.Join([]string{
		"apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: fairlead}\nspec: {controllerName: fairlead.dev/gateway}\n",
		gateway("edge", 80), service("default", "app", s.cluster("os1")...), httpRoute("default", "app", "up.example.com", to("app")),
	}, "---\n"))
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.awaitAnswerOf(t, home.Name, request{host: "up.example.com"}, 200, "os1-a", "os1-b")
	// A request may be answered before the agent has reported that it is.
	s.await(t, "a status without problems", func(context.Context) error {
		status, out, errs := s.run(t, m, "status")
		if wrong := wantText(out, "home", "default/app", "Nothing is wrong."); status != 0 || wrong != "" {
			return fmt.Errorf("status ended with %d: %s%s", status, wrong, errs)
		}
		return nil
	})

	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM} {
		if err := p.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(t.Context()); err != nil {
			t.Errorf("up ended with %v after %s", err, sig)
		}
		s.awaitEmpty(t, m)
		if sig == unix.SIGINT {
			up() // with what was applied before
			s.awaitAnswerOf(t, home.Name, request{host: "up.example.com"}, 200, "os1-a", "os1-b")
		}
	}
}
