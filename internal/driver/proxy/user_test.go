package proxy

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"fairlead.dev/internal/model"
)

// another is a user who is nobody, as whom a test runs Envoy.
func another(t *testing.T) User {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("Envoy runs as another user where the agent is root")
	}
	u := User{firstFree, firstFree + 1}
	if why := u.hindered(); why != "" {
		t.Skip("Envoy cannot run as another user: " + why)
	}
	return u
}

// hiddenDir is a run directory to which others have no path.
func hiddenDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(runDir(t), "hidden")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range holders(t, dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return dir
}

// TestEnvoyHasNoRights: a real Envoy of another user is configured, adopted by the next agent,
// started anew, and has one capability and no way to another.
func TestEnvoyHasNoRights(t *testing.T) {
	t.Parallel()
	dir := hiddenDir(t)
	c := configure(t, dir)
	c.User = another(t)
	first := begin(t, c)
	pid := first.ready(1)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	four := func(n uint32) string { return strings.Repeat(fmt.Sprintf(`\t%d`, n), 4) }
	for _, want := range []string{
		`Name:\tenvoy`, `Uid:` + four(c.User.UID), `Gid:` + four(c.User.GID), `Groups:\t\s*`, `CapPrm:\t0{13}400`, `CapEff:\t0{13}400`, `NoNewPrivs:\t1`, `Seccomp:\t2`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).Match(status) {
			t.Errorf("%s is not in\n%s", want, status)
		}
	}
	first.stop()
	alive(t, pid)

	// The next agent makes its socket anew, and systemd takes the directory back for the agent.
	mine := []string{dir, filepath.Join(dir, "envoy.log"), filepath.Join(dir, "outliers.log"), c.ADSSocket}
	for _, path := range mine {
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700, c.ADSSocket: 0o600} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	second := begin(t, c)
	if adopted := second.ready(0); adopted != pid {
		t.Fatalf("process %d was not adopted, %d is there", pid, adopted)
	}
	for i, path := range mine {
		want, group := fs.FileMode(0o660), c.User.GID
		if i == 0 {
			want, group = 0o701, 0
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want || info.Sys().(*syscall.Stat_t).Gid != group {
			t.Errorf("%s is %v after the adoption, of group %d", path, info.Mode(), info.Sys().(*syscall.Stat_t).Gid)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	last := second.ready(1)
	second.stop()

	// An agent that would run Envoy as itself adopts it too, and drains it.
	c.User, c.OnStop = User{}, Drain
	third := begin(t, c)
	if adopted := third.ready(0); adopted != last {
		t.Fatalf("process %d was not adopted, %d is there", last, adopted)
	}
	third.stop()
	gone(t, last)
}

// says runs a shell's words in Envoy's place, as another user, in a run directory that was
// everybody's, and returns its log when that has what it ends with. The shell cannot start other
// programs, but for its last one.
func says(t *testing.T, dir string, words, last string) string {
	t.Helper()
	c := script(t, dir, "")
	c.User = another(t)
	hidden := filepath.Join(dir, "closed")
	if err := os.Mkdir(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"ads.sock": 0o600, "secret": 0o600, "closed/open": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("the secret\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c.Binary = filepath.Join(hidden, "binary")
	if err := os.WriteFile(c.Binary, []byte("#!/bin/sh\n"+words), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.Binary, 0o755); err != nil { // of any umask
		t.Fatal(err)
	}
	begin(t, c).seen("it is started", func(st model.ProxyStatus) bool { return st.Starts == 1 })
	var said string
	eventually(t, "it has said "+last, func() bool {
		log, err := os.ReadFile(filepath.Join(dir, "envoy.log"))
		said = string(log)
		return err == nil && strings.Contains(said, last)
	})
	return said
}

// TestUserReachesNothingElse: what runs in Envoy's place, of a binary to which it has no path,
// tries what somebody would who took it over.
func TestUserReachesNothingElse(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ words, last string }{
		"files": {`
read -r x < secret && echo did: read a secret, $x
read -r x < closed/open && echo did: read in a closed directory, $x
echo x > note && echo did: write there
echo x > exe/note && echo did: write there
echo x > proxy/note && echo may: write into its own
while read -r k v; do [ "$k" != Uid: ] || echo uid $v; done < /proc/self/status
echo end
exec sleep 1000
`, "end\n"},
		"another process":  {"echo may: begin\n(:)\necho did: start another process\n", "fork"},
		"another user":     {"echo may: begin\nexec unshare -U sh -c 'echo did: become root of its own'\n", "unshare failed"},
		"mounts":           {"echo may: begin\nexec mount -t tmpfs none proxy\n", "mount: "},
		"others' signals":  {"echo may: begin\nkill -0 $$ && echo did: send a signal\necho end\nexec sleep 1000\n", "end\n"},
		"others' memories": {fmt.Sprintf("echo may: begin\nread -r x < /proc/%d/maps && echo did: look into the agent\necho end\nexec sleep 1000\n", os.Getpid()), "end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			said := says(t, dir, x.words, x.last)
			if strings.Contains(said, "did: ") || strings.Contains(said, "the secret") {
				t.Errorf("it got through:\n%s", said)
			}
			contains(t, said, "may: ")
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("the run directory is %v, %v", info, err)
			}
			if name == "files" {
				contains(t, said, fmt.Sprintf("uid %d %[1]d %[1]d %[1]d\n", firstFree))
			}
		})
	}
}

// TestRunDirectoriesOfOthers: in a directory that others can change Envoy is started as the agent
// or not at all.
func TestRunDirectoriesOfOthers(t *testing.T) {
	t.Parallel()
	u := another(t)
	for name, change := range map[string]func(string) error{
		"can be written by everybody": func(dir string) error { return os.Chmod(dir, fs.ModeSticky|0o777) },
		"belongs to user 65520":       func(dir string) error { return os.Chown(dir, firstFree, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			c := script(t, dir, "exec sleep 1000")
			if err := os.WriteFile(c.ADSSocket, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c.User = u
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			st := begin(t, c).seen("it is refused", func(st model.ProxyStatus) bool { return st.State == Backoff || st.Starts > 0 })
			contains(t, st.Message, name, "--envoy-user same")
		})
	}
}

// TestNamesProveNothing: a process whose descriptor has the lock's name, in a mount namespace of
// its own, does not hold it.
func TestNamesProveNothing(t *testing.T) {
	t.Parallel()
	another(t)
	lock, err := realPath(filepath.Join(runDir(t), "envoy.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fake := exec.Command("unshare", "-m", "sh", "-c", `mount -t tmpfs none "$0" && exec 3> "$1" && exec sleep 1000`, filepath.Dir(lock), lock)
	if err := fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = fake.Process.Kill()
		_ = fake.Wait()
	})
	eventually(t, "its descriptor has the name", func() bool {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", fake.Process.Pid, lockFD))
		return err == nil && name == lock
	})
	if holds(fake.Process.Pid, lock) {
		t.Error("it is taken for the holder")
	}
}

// TestAdminSocketIsOne: the agent follows no link that Envoy put in the place of its socket.
func TestAdminSocketIsOne(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, userDir), 0o700); err != nil {
		t.Fatal(err)
	}
	path, at := filepath.Join(dir, adminSocket), filepath.Join(dir, userDir, adminSocket)
	if err := os.Symlink(filepath.Join(userDir, adminSocket), path); err != nil {
		t.Fatal(err)
	}
	listen := func(path string) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	listen(at)
	conn, err := dial(context.Background(), path)
	if err != nil {
		t.Fatalf("its own socket: %v", err)
	}
	_ = conn.Close()
	other := filepath.Join(dir, "other.sock")
	listen(other)
	for what, put := range map[string]func() error{
		"a link": func() error { return os.Symlink(other, at) },
		"a file": func() error { return os.WriteFile(at, nil, 0o600) },
	} {
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if conn, err := dial(context.Background(), path); err == nil {
			_ = conn.Close()
			t.Errorf("%s is taken for its socket", what)
		}
	}
}

func TestFindUser(t *testing.T) {
	for text, want := range map[string]User{SameUser: {}, "0": {}, "0:0": {}, "root": {}} {
		if u, _, err := FindUser(text); err != nil || u != want {
			t.Errorf("%s is %v, %v", text, u, err)
		}
	}
	for _, text := range []string{"no-such-account", "1:", ":1", "1:x", "4294967295", "-1", "1:2:3"} {
		if u, _, err := FindUser(text); err == nil {
			t.Errorf("%s is %v", text, u)
		}
	}
	if os.Geteuid() != 0 {
		if u, why, err := FindUser(AutoUser); err != nil || why != "" || !u.same() {
			t.Errorf("who is not root runs Envoy as %v, %q, %v", u, why, err)
		}
		return
	}
	auto, why, err := FindUser(AutoUser)
	if err != nil || auto.same() != (why != "") {
		t.Errorf("root runs Envoy as %v, %q, %v", auto, why, err)
	}
	if why == "" {
		if u, _, err := FindUser("7:8"); err != nil || u != (User{7, 8}) {
			t.Errorf("7:8 is %v, %v", u, err)
		}
	}
}

func TestNumbersOfANamespace(t *testing.T) {
	text := []byte("         0     100000      65536\n     70000     200000          1\n")
	for id, want := range map[uint32]bool{0: true, 65535: true, 65536: false, 69999: false, 70000: true, 70001: false} {
		if within(text, id) != want {
			t.Errorf("%d: %v", id, !want)
		}
	}
}
