// Package rig runs Fairlead's own programs on the machines of a lab: planes,
// agents with their Envoys, and backends; and waits for what they promise.
//
// It refuses to know what the programs do inside: it speaks their command line,
// their consoles and kubectl. Invariant: everything it starts is the lab's and
// goes with it, and nothing it waits for is waited for without a limit.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/program"
)

// Patience is how long each thing that is waited for may take. It tells what hangs from what
// is slow, and no more: on a machine that does ten times its work a plane takes a minute to
// start, and nothing that works comes near to this.
const Patience = 4 * time.Minute

// tick is how often a condition is looked at.
const tick = 20 * time.Millisecond

// Rig runs programs in a lab. All fields but Progress are required.
type Rig struct {
	Lab *lab.Lab
	// Binary is fairlead itself; Kubectl and Envoy may be empty if they are not used.
	Binary, Kubectl, Envoy string
	Now                    func() time.Time
	// Progress, if set, is told every three seconds what is still waited for.
	Progress func(what string, waited time.Duration, last error)

	mu      sync.Mutex
	clients map[*lab.Machine]*http.Client
	mounted map[string]bool // machines with a bpffs
}

// FindKubectl returns kubectl: FAIRLEAD_KUBECTL, else the one beside the binary,
// else the one on PATH.
func FindKubectl(binary string) (string, error) {
	return find(program.Kubectl, "FAIRLEAD_KUBECTL", filepath.Join(filepath.Dir(binary), "kubectl"))
}

// FindEnvoy returns Envoy: FAIRLEAD_ENVOY, else .tools/envoy below the current
// directory, else the one on PATH.
func FindEnvoy() (string, error) {
	return find(program.Envoy, "FAIRLEAD_ENVOY", filepath.Join(".tools", "envoy"))
}

func find(p program.Program, variable, beside string) (string, error) {
	named := os.Getenv(variable)
	candidate := named
	if _, err := os.Stat(beside); candidate == "" && err == nil {
		candidate = beside
	}
	if candidate == "" {
		found, err := p.Find()
		if err != nil {
			return "", fmt.Errorf("%w (%s names one elsewhere)", err, variable)
		}
		return found.Path, nil
	}
	path, err := exec.LookPath(candidate)
	if err == nil || errors.Is(err, exec.ErrDot) {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		_, err = p.At(path)
	}
	switch {
	case err != nil && named != "":
		return "", fmt.Errorf("find %s: %s=%s: %w", p.Name, variable, named, err)
	case err != nil:
		return "", fmt.Errorf("find %s: %w: `tools/setup.sh %s` installs it (%s names one elsewhere)", p.Name, err, p.Part, variable)
	}
	return path, nil
}

// noProxies keeps a proxy of the host's out of the lab: it cannot reach it.
var noProxies = []string{"NO_PROXY=*", "no_proxy=*"}

// start runs one of Fairlead's processes in a machine.
func (r *Rig) start(ctx context.Context, m *lab.Machine, name string, argv ...string) (*lab.Process, error) {
	return m.Start(ctx, lab.ProcessSpec{Name: name, Argv: argv, Env: noProxies})
}

// run runs a short program in a machine and returns its output. The error holds
// what it wrote to standard error.
func (r *Rig) run(ctx context.Context, m *lab.Machine, stdin string, argv ...string) ([]byte, error) {
	c := m.Command(ctx, argv...)
	c.Env = append(os.Environ(), noProxies...)
	c.Stdin = strings.NewReader(stdin)
	out, err := c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return out, fmt.Errorf("%w: %.500s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

// client returns the HTTP client whose connections start in the machine.
func (r *Rig) client(m *lab.Machine) *http.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients == nil {
		r.clients = map[*lab.Machine]*http.Client{}
	}
	if r.clients[m] == nil {
		r.clients[m] = m.HTTPClient()
		r.clients[m].Timeout = 5 * time.Second
	}
	return r.clients[m]
}

// Get is nil if the URL, asked for in the machine, answers 200.
func (r *Rig) Get(ctx context.Context, m *lab.Machine, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := r.client(m).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %.200s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// fatal marks an error that waiting will not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal makes Await give up at once with err.
func Fatal(err error) error { return fatal{err} }

// Await tries until it gets nil. It gives up with the last error when its patience ends,
// and with ctx's when that ends.
func (r *Rig) Await(ctx context.Context, what string, try func(context.Context) error) error {
	return r.await(ctx, Patience, what, try)
}

func (r *Rig) await(ctx context.Context, limit time.Duration, what string, try func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := r.Now()
	said := time.Duration(0)
	var last error
	for {
		err := try(bounded)
		if last != nil && bounded.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			err = last // the limit cut this try off; what was wrong is what the one before said
		}
		last = err
		var f fatal
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("wait for %s: not within %s: %w", what, limit, err)
		case <-time.After(tick):
		}
		if waited := r.Now().Sub(began); waited >= said+3*time.Second && r.Progress != nil {
			said = waited
			r.Progress(what, waited, err)
		}
	}
}

// awaitProcess waits until a process answers 200 at a URL, and gives up when the
// process ends.
func (r *Rig) awaitProcess(ctx context.Context, p *lab.Process, m *lab.Machine, url string) error {
	return r.Await(ctx, fmt.Sprintf("%s on %s to be ready", p.Name(), m.Name()), func(ctx context.Context) error {
		if !p.Running() {
			return Fatal(fmt.Errorf("%s on %s has ended: %s", p.Name(), m.Name(), lastLine(p.Log())))
		}
		return r.Get(ctx, m, url)
	})
}

// lastLine returns the last line of a log.
func lastLine(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return lines[len(lines)-1]
}
