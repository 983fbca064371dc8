package uml

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Linux is the kernel's name in PATH (Debian: user-mode-linux).
const Linux = "linux.uml"

// Environment of the first process.
const (
	envInside  = "FAIRLEAD_UML"
	envArgs    = "FAIRLEAD_UML_ARGS"
	envModules = "FAIRLEAD_UML_MODULES"
)

// ErrMissing is wrapped when there is no user-mode Linux.
var ErrMissing = errors.New("no user-mode Linux here: tools/setup.sh uml installs it")

// Options say what runs in the kernel.
type Options struct {
	// Binary is linked statically and calls Inside and Finish.
	Binary string
	// Args of the binary; none may have a comma or a space.
	Args []string
	// Modules to load first, with what they need.
	Modules []string
	// Memory of the kernel; default 512M.
	Memory string
	// Dir is for files of the run; they are removed by whoever made Dir.
	Dir string
	// Shim forces the library for AMX hosts.
	Shim bool
	// Line gets each line of output.
	Line func(string)
}

var exitLine = regexp.MustCompile(`^uml: exit (\d+)$`)

// haltTime is how long the kernel may take to end after it has halted.
const haltTime = 10 * time.Second

// Run boots a kernel, runs the binary in it and returns its exit status. An error means
// that it did not get that far.
func Run(ctx context.Context, o Options) (int, error) {
	linux, err := exec.LookPath(Linux)
	if err != nil {
		return 0, ErrMissing
	}
	if o.Memory == "" {
		o.Memory = "512M"
	}
	command := exec.CommandContext(ctx, linux,
		"mem="+o.Memory, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init="+o.Binary, "uml_dir="+o.Dir, "umid=uml",
		"con=null", "con0=null,fd:1", "ssl=null", "quiet", "panic=-1", "random.trust_cpu=on",
		envInside+"=1", envArgs+"="+strings.Join(o.Args, ","), envModules+"="+strings.Join(o.Modules, ","))
	command.Env = append(os.Environ(), "TMPDIR="+o.Dir)
	if amx, err := hasAMX(); err != nil {
		return 0, err
	} else if amx || o.Shim {
		library, err := buildShim(ctx, o.Dir)
		if err != nil {
			return 0, err
		}
		command.Env = append(command.Env, "LD_PRELOAD="+library)
	}
	// All that the kernel starts is in its PID namespace and ends with it.
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := command.StdoutPipe()
	if err != nil {
		return 0, err
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		return 0, fmt.Errorf("boot user-mode Linux: %w", err)
	}
	// The kernel may go on to run after it has halted: on a busy machine one did so for ten minutes.
	halted := time.AfterFunc(time.Hour, func() { _ = command.Process.Kill() })
	defer halted.Stop()
	status := -1
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		if m := exitLine.FindStringSubmatch(line); m != nil {
			status, _ = strconv.Atoi(m[1])
			continue
		}
		if status >= 0 && strings.HasSuffix(line, "reboot: System halted") {
			halted.Reset(haltTime)
		}
		if o.Line != nil {
			o.Line(line)
		}
	}
	err = errors.Join(lines.Err(), command.Wait())
	if ctx.Err() != nil {
		return 0, fmt.Errorf("user-mode Linux took too long: %w", ctx.Err())
	}
	if status < 0 {
		return 0, fmt.Errorf("user-mode Linux ended before the test did: %w", errors.Join(err, errors.New("its output says more")))
	}
	return status, nil
}

// hasAMX reports whether the processor's state is larger than this kernel's buffer for it.
func hasAMX() (bool, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false, err
	}
	return strings.Contains(string(text), " amx_tile"), nil
}

// buildShim compiles the library, which is found from the folder of a test below the
// repository's root.
func buildShim(ctx context.Context, dir string) (string, error) {
	source, err := find(filepath.Join("lab", "uml", "shim", "xstate.c"))
	if err != nil {
		return "", err
	}
	library := filepath.Join(dir, "xstate.so")
	out, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the library that user-mode Linux needs on a processor with AMX (apt-get install gcc libc6-dev): %w: %s", err, out)
	}
	return library, nil
}

// find looks for a file of the repository in the folders above.
func find(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is in no folder above", name)
		}
		dir = filepath.Dir(dir)
	}
}
