package proxy

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	"fairlead.dev/internal/xds/envoytest"
)

// freePort is below those that the system gives to connections.
func freePort(t *testing.T) uint16 {
	t.Helper()
	for {
		port := 10_000 + rand.N(22_000)
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			_ = l.Close()
			return uint16(port)
		}
	}
}

// TestAccessLogIsNotForEverybody: the access log that a real Envoy makes is its user's and its group's, whoever runs
// it, in spite of the agent's umask; and so it is after a rotation as operate.md has it, with no line lost.
func TestAccessLogIsNotForEverybody(t *testing.T) {
	for name, user := range map[string]func(*testing.T) User{
		"another user": another,
		"the agent":    func(*testing.T) User { return User{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			c := configure(t, dir)
			c.User, c.OnStop = user(t), Drain
			owner := os.Geteuid()
			if !c.User.same() {
				owner = int(c.User.UID)
			}
			logs, err := os.MkdirTemp("", "log") // others have a path to it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(logs) })
			if err := os.Chmod(logs, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(logs, owner, -1); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(logs, "edge.log")
			l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
			serves(t, &c, l, xds.Options{AccessLog: log})
			pid := begin(t, c).ready(1)
			if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil || !strings.Contains(string(status), "\nUmask:\t0027\n") {
				t.Errorf("Envoy's umask is not 027: %v", err)
			}
			asked := 0
			ask := func() {
				t.Helper()
				eventually(t, "an answer", func() bool {
					r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/%d", l.Port, asked))
					if err != nil {
						return false
					}
					return r.Body.Close() == nil
				})
				asked++
			}
			has := func(path string, line int) {
				t.Helper()
				eventually(t, fmt.Sprintf("line %d is in %s", line, path), func() bool {
					body, err := os.ReadFile(path)
					return err == nil && strings.Contains(string(body), fmt.Sprintf(`"path":"/%d"`, line))
				})
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode() != 0o640 || int(info.Sys().(*syscall.Stat_t).Uid) != owner {
					t.Errorf("%s is %v, of user %d; want 0640, %d", path, info.Mode(), info.Sys().(*syscall.Stat_t).Uid, owner)
				}
			}
			ask()
			has(log, 0)

			// As logrotate does: it makes the new file, and Envoy opens it when it is told to. The last lines before
			// may be in either.
			ask()
			if err := os.Rename(log, log+".1"); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(log, os.O_CREATE|os.O_EXCL, 0o640)
			if err == nil {
				err = f.Chmod(fs.FileMode(0o640))
			}
			if err == nil {
				err = f.Chown(owner, -1)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			if err := os.Chown(logs, os.Geteuid(), -1); err != nil { // as /var/log is root's
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the new file is written", func() bool {
				ask()
				info, err := os.Stat(log)
				return err == nil && info.Size() > 0
			})
			has(log, asked-1)
			var all string
			for _, path := range []string{log + ".1", log} {
				body, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				all += string(body)
			}
			for i := range asked {
				if n := strings.Count(all, fmt.Sprintf(`"path":"/%d"`, i)); n != 1 {
					t.Errorf("request %d of %d has %d lines", i, asked, n)
				}
			}
			alive(t, pid)
		})
	}
}

// serves has the server of c serve a listener without hosts.
func serves(t *testing.T, c *Config, l model.Listener, o xds.Options) {
	t.Helper()
	c.ADSSocket = filepath.Join(c.RunDir, "listener.sock")
	socket, err := net.Listen("unix", c.ADSSocket)
	if err != nil {
		t.Fatal(err)
	}
	ads := envoytest.NewADS()
	ads.Serve(socket)
	t.Cleanup(ads.Close)
	for _, shard := range xds.AllShards(l.ID) {
		if err := ads.Set(xds.RouteConfiguration(l.ID, shard, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for _, scope := range xds.Scopes(l.ID) {
		if err := ads.Set(scope); err != nil {
			t.Fatal(err)
		}
	}
	if err := ads.Set(xds.Listener(l, nil, o)); err != nil {
		t.Fatal(err)
	}
}
