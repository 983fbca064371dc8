package uml

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// modulesDir is where Debian has the modules of its user-mode kernel.
const modulesDir = "/usr/lib/uml/modules"

// Inside reports whether this process is the first of a user-mode kernel; it has then
// mounted what processes expect, loaded the modules and set os.Args. Such a process ends
// with Finish.
func Inside() bool {
	if os.Getenv(envInside) == "" || os.Getpid() != 1 {
		return false
	}
	if err := prepare(); err != nil {
		fmt.Println("uml:", err)
		Finish(1)
	}
	return true
}

// Finish says how the test ended and switches the kernel off.
func Finish(status int) {
	fmt.Printf("\numl: exit %d\n", status)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func prepare() error {
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for name, value := range map[string]string{"TMPDIR": "/run", "HOME": "/run", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	os.Args = append(os.Args[:1], strings.Split(os.Getenv(envArgs), ",")...)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	release := unix.ByteSliceToString(u.Release[:])
	fmt.Println("uml: Linux", release)
	return load(filepath.Join(modulesDir, release), strings.Split(os.Getenv(envModules), ","))
}

// load loads modules with those that they need, as modules.dep says: "a.ko: b.ko c.ko",
// where a.ko needs b.ko and b.ko may need c.ko.
func load(dir string, names []string) error {
	file, err := os.Open(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	needs := map[string][]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		module, rest, _ := strings.Cut(lines.Text(), ":")
		needs[strings.TrimSuffix(filepath.Base(module), ".ko")] = append([]string{module}, strings.Fields(rest)...)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for _, name := range names {
		files, found := needs[name]
		if !found {
			return fmt.Errorf("%s has no module %s", dir, name)
		}
		for _, f := range slices.Backward(files) {
			if err := insert(filepath.Join(dir, f)); err != nil {
				return fmt.Errorf("load module %s: %w", f, err)
			}
		}
	}
	return nil
}

func insert(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
