package packages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// boot makes namespaces of everything, and starts systemd in them as a machine: $1 is a
// directory for the overlay, $2 the Debian below it, $3 what the machine sees as /host.
const boot = `set -e
mount --make-rprivate /
umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup
hostname machine; ip link set lo up
ip link add eth0 type veth peer name eth1; ip link set eth1 up
ip addr add 10.9.0.1/24 dev eth0; ip link set eth0 up; ip route add default via 10.9.0.2
mkdir -p "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
mkdir "$1/root/host"; mount --bind "$3" "$1/root/host"
cd "$1/root"
for unit in getty@tty1 console-getty systemd-timesyncd apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-logind; do
	case $unit in *.*) ;; *) unit=$unit.service ;; esac
	ln -sf /dev/null "etc/systemd/system/$unit"
done
ln -sf /lib/systemd/system/multi-user.target etc/systemd/system/default.target
mount -t proc proc proc; mount -t sysfs -o ro sysfs sys; mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for d in null zero full random urandom tty; do touch "dev/$d"; mount --bind "/dev/$d" "dev/$d"; done
mkdir dev/pts dev/shm; ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p old; pivot_root . old; umount -l /old; rmdir /old
export container=other; exec /lib/systemd/systemd --log-target=journal
`

// A machine is a Debian with a real systemd, in namespaces of its own.
type machine struct {
	t    *testing.T
	init int // its process 1, as this host counts
}

// newMachine boots one. host is what it sees as /host.
func newMachine(t *testing.T, debian, host string) *machine {
	t.Helper()
	// A tmpfs cannot be the upper part of an overlay everywhere; nor can an overlay.
	dir, err := os.MkdirTemp(filepath.Dir(debian), "machine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	group := filepath.Join(cgroups(t), fmt.Sprintf("fairlead-packages-%d", os.Getpid()))
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && exec unshare --pid --fork --mount --uts --ipc --net --cgroup --kill-child sh -c "$@"`,
		group, boot, "boot", dir, debian, host)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and its child: --kill-child
		_ = cmd.Wait()
		removeGroups(group)
	})
	m.eventually("systemd runs the machine", func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil {
			return err
		}
		if m.init, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%w: %s", err, text)
		}
		_, err = os.Stat(fmt.Sprintf("/proc/%d/root/run/systemd/private", m.init))
		return err
	})
	if out, err := m.try("systemctl", "is-system-running", "--wait"); err != nil {
		failed, _ := m.try("systemctl", "--failed", "--no-legend")
		t.Fatalf("the machine is %s: %v: %s", out, err, failed)
	}
	return m
}

// cgroups is where this host has the second version of control groups.
func cgroups(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var stat unix.Statfs_t
		if unix.Statfs(path, &stat) == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC {
			return path
		}
	}
	t.Fatal("this host has no cgroup2")
	return ""
}

// removeGroups removes groups from the leaves on, once nothing is in them.
func removeGroups(group string) {
	for range 100 {
		var dirs []string
		_ = filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i])
		}
		if _, err := os.Stat(group); err != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// command is one in the machine, with an environment as of a login.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{
		"-t", strconv.Itoa(m.init), "-a", "env", "-i",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/nowhere", "DEBIAN_FRONTEND=noninteractive",
	}, args...)...)
}

func (m *machine) try(args ...string) (string, error) {
	out, err := m.command(context.Background(), args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		journal, _ := m.try("journalctl", "--no-pager", "-n", "40", "-u", "fairlead-*")
		m.t.Fatalf("%v\n%s", err, journal)
	}
	return out
}

func (m *machine) eventually(what string, check func() error) {
	m.t.Helper()
	var err error
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	m.t.Fatalf("%s: not within five minutes: %v", what, err)
}

var errNot = errors.New("not yet")
