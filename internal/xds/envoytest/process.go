package envoytest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/proto"
)

// ErrNoEnvoy says that no Envoy binary was found; tests skip with it as the reason.
var ErrNoEnvoy = errors.New("no envoy: set FAIRLEAD_ENVOY, put one on PATH or run tools/setup.sh envoy (.tools/envoy)")

// Find is the path of the Envoy to use: FAIRLEAD_ENVOY, then PATH, then .tools/envoy
// at the root of the repository that holds the working directory.
func Find() (string, error) {
	if p := os.Getenv("FAIRLEAD_ENVOY"); p != "" {
		return p, nil
	}
	if p, err := exec.LookPath("envoy"); err == nil {
		return p, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", ErrNoEnvoy
		}
		dir = filepath.Dir(dir)
	}
	p := filepath.Join(dir, ".tools", "envoy")
	if _, err := os.Stat(p); err != nil {
		return "", ErrNoEnvoy
	}
	return p, nil
}

// Envoy is a running Envoy process.
type Envoy struct {
	cmd   *exec.Cmd
	admin string // unix socket
	log   string
	done  chan struct{}
}

// Start runs Envoy with a bootstrap whose admin interface is the unix socket admin,
// files below dir, and returns once it is live. extra arguments are Envoy's own.
func Start(ctx context.Context, bootstrap *bootstrapv3.Bootstrap, admin, dir string, extra ...string) (*Envoy, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	file, err := Write(bootstrap, dir)
	if err != nil {
		return nil, err
	}
	e := &Envoy{admin: admin, log: filepath.Join(dir, "envoy.log"), done: make(chan struct{})}
	log, err := os.Create(e.log)
	if err != nil {
		return nil, fmt.Errorf("create log of envoy: %w", err)
	}
	defer log.Close()
	e.cmd = exec.Command(path, append([]string{"-c", file, "--disable-hot-restart", "-l", "warning"}, extra...)...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start envoy: %w", err)
	}
	go func() {
		_ = e.cmd.Wait()
		close(e.done)
	}()
	err = e.Until(ctx, "envoy to be live", func() bool {
		body, err := e.Admin(ctx, http.MethodGet, "/server_info")
		return err == nil && strings.Contains(body, "version")
	})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Write puts a bootstrap into dir, in the encoding that also has fields which the Go types do not know.
func Write(bootstrap *bootstrapv3.Bootstrap, dir string) (string, error) {
	body, err := proto.Marshal(bootstrap)
	if err != nil {
		return "", fmt.Errorf("marshal bootstrap: %w", err)
	}
	file := filepath.Join(dir, "bootstrap.pb")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		return "", fmt.Errorf("write bootstrap: %w", err)
	}
	return file, nil
}

// Validate runs envoy --mode validate; the error contains Envoy's message.
func Validate(ctx context.Context, bootstrap *bootstrapv3.Bootstrap, dir string) error {
	path, err := Find()
	if err != nil {
		return err
	}
	file, err := Write(bootstrap, dir)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, "--mode", "validate", "-c", file, "-l", "error").CombinedOutput()
	if err != nil {
		return fmt.Errorf("validate with envoy: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Until calls done every few milliseconds until it is true, ctx ends or Envoy exits.
func (e *Envoy) Until(ctx context.Context, what string, done func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-e.done:
			return fmt.Errorf("wait for %s: envoy exited: %s", what, e.Log())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %s", what, ctx.Err(), e.Log())
		}
	}
	return nil
}

// Admin asks the admin interface.
func (e *Envoy) Admin(ctx context.Context, method, path string) (string, error) {
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.admin)
		},
	}}
	q, err := http.NewRequestWithContext(ctx, method, "http://admin"+path, nil)
	if err != nil {
		return "", fmt.Errorf("ask admin interface: %w", err)
	}
	r, err := c.Do(q)
	if err != nil {
		return "", fmt.Errorf("ask admin interface: %w", err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", fmt.Errorf("read admin interface: %w", err)
	}
	return string(body), nil
}

// Stat is a counter or gauge by its full name, or -1 when there is none.
func (e *Envoy) Stat(ctx context.Context, name string) int {
	body, err := e.Admin(ctx, http.MethodGet, "/stats?filter=^"+strings.ReplaceAll(name, ".", `\.`)+"$")
	if err != nil {
		return -1
	}
	_, value, ok := strings.Cut(strings.TrimSpace(body), ": ")
	if !ok {
		return -1
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return -1
	}
	return n
}

// RSS is the resident memory in KiB.
func (e *Envoy) RSS() int {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(body)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return -1
}

// CPU is the processor time that Envoy's living threads have used so far.
func (e *Envoy) CPU() (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", e.cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("find the threads of envoy: %w", cmp.Or(err, os.ErrNotExist))
	}
	var sum time.Duration
	for _, f := range files {
		body, err := os.ReadFile(f)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		used, _, _ := strings.Cut(string(body), " ") // nanoseconds (kernel: scheduler/sched-stats)
		n, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// Log is what Envoy has logged, at most its last 4 KiB.
func (e *Envoy) Log() string {
	body, err := os.ReadFile(e.log)
	if err != nil {
		return err.Error()
	}
	return string(body[max(0, len(body)-4096):])
}

// Close kills Envoy and waits for its end.
func (e *Envoy) Close() error {
	if err := e.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill envoy: %w", err)
	}
	<-e.done
	return nil
}
