// Package confine runs a program as an unprivileged user, or as the present one (Same).
//
// A process starts itself once more under this package's name. That second process gives up its rights
// step by step and becomes the program. Package syscall could do so between fork and execve, but with one
// flaw: there the child already has the other user and still the parent's memory, and the parent's thread
// waits for it. A process of that user could stop the child, and with it the parent.
//
// Files of the program, such as logs, are not readable beyond its group: its umask is 027. A umask belongs
// to all threads of a process, so only the second process can set it, and it starts every program.
//
// The work is done while packages initialise, before packages with longer initialisations: they do so in the
// order of their paths, after their imports (the Go specification, "Program initialization").
// In a process under another name this package does nothing.
package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// name of the process between.
	name = "fairlead-confine"
	// sameName is its name where the program keeps user and rights.
	sameName = "fairlead-start"
	umask    = 0o027
	// failed is its exit status where it could not become the program: as shells have it for what
	// cannot be run.
	failed = 126
	// firstFile is the file descriptor of the first of exec.Cmd's ExtraFiles.
	firstFile = 3
)

func init() {
	if len(os.Args) == 0 {
		return
	}
	var err error
	switch os.Args[0] {
	case name:
		err = become(os.Args[1:])
	case sameName:
		err = start(os.Args[1:])
	default:
		return
	}
	fmt.Fprintf(os.Stderr, "fairlead: %v\n", err)
	os.Exit(failed)
}

// Program is a program and the user that it runs as.
type Program struct {
	// File is the program, opened with O_PATH. The user needs no path to it.
	File *os.File
	// Name, below Dir, is a symbolic link to FilePath: by it the process has the program's name.
	Name string
	// Dir is where it runs, opened with O_PATH. The user needs no path to it.
	Dir      *os.File
	UID, GID uint32
	// Args are those of the program, its own name first.
	Args []string
	// Files are its file descriptors from 3 on.
	Files []*os.File
}

// FilePath is where the program is for a process with that many Files.
func FilePath(files int) string { return "/proc/self/fd/" + strconv.Itoa(firstFile+files) }

// Command runs the program: without groups, with no right but that to ports below 1024, if this
// process has it, without a way to get more rights or other processes, and without system calls
// that no server has a use for (filter.go). What keeps it from becoming the program it says on
// standard error, and it ends with status 126. The program has one file descriptor more than
// its Files, its own.
func Command(p Program) *exec.Cmd {
	return &exec.Cmd{
		Path: "/proc/self/exe",
		Args: append([]string{
			name, strconv.FormatUint(uint64(p.UID), 10), strconv.FormatUint(uint64(p.GID), 10), strconv.Itoa(len(p.Files)), p.Name,
		}, p.Args...),
		ExtraFiles: append(append([]*os.File{}, p.Files...), p.File, p.Dir),
	}
}

// Same runs a program as this process runs, with the same files from 3 on, but for its umask. args are those of
// the program, its own name first. What keeps it from running it says as Command's does.
func Same(path string, args []string, files []*os.File) *exec.Cmd {
	return &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{sameName, path}, args...), ExtraFiles: files}
}

// start becomes a program. It returns only if that fails.
func start(args []string) error {
	if len(args) < 2 {
		return errors.New("only the agent starts this process")
	}
	unix.Umask(umask)
	return fmt.Errorf("run %s: %w", args[0], syscall.Exec(args[0], args[1:], os.Environ()))
}

// become becomes a program. It returns only if that fails.
func become(args []string) error {
	if len(args) < 5 {
		return errors.New("only the agent starts this process")
	}
	var numbers [3]int
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.Atoi(args[i]); err != nil {
			return fmt.Errorf("only the agent starts this process: %w", err)
		}
	}
	if numbers[0] <= 0 || numbers[1] < 0 || numbers[2] < 0 {
		return errors.New("this process gives up root's rights, and only the agent starts it")
	}
	uid, gid, files, program, argv := numbers[0], numbers[1], numbers[2], args[3], args[4:]
	unix.Umask(umask)
	// Rights are those of a thread.
	runtime.LockOSThread()
	if err := drop(uid, gid); err != nil {
		return fmt.Errorf("become user %d:%d: %w", uid, gid, err)
	}
	dir := firstFile + files + 1
	if err := errors.Join(unix.Fchdir(dir), unix.Close(dir)); err != nil {
		return fmt.Errorf("go to the run directory as user %d:%d: %w", uid, gid, err)
	}
	if err := filterCalls(); err != nil {
		return err
	}
	err := syscall.Exec("./"+program, argv, os.Environ())
	hint := ""
	if errors.Is(err, syscall.EACCES) {
		hint = ": check that every user may execute it"
	}
	return fmt.Errorf("run %s as user %d:%d: %w%s", argv[0], uid, gid, err, hint)
}

// drop leaves this thread one user and at most one capability.
func drop(uid, gid int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, has [2]unix.CapUserData
	if err := unix.Capget(&header, &had[0]); err != nil {
		return err
	}
	bind := had[0].Permitted & (1 << unix.CAP_NET_BIND_SERVICE)
	has[0] = unix.CapUserData{Effective: bind, Permitted: bind, Inheritable: bind}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	// Package syscall would do this for all threads, and has to stop them.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return errno
	}
	if err := unix.Capset(&header, &has[0]); err != nil {
		return err
	}
	if bind == 0 {
		return nil
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_BIND_SERVICE, 0, 0)
}
