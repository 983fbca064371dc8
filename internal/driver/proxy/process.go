package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/proxy/confine"
)

// lockFD is the file descriptor under which an Envoy holds the lock: the first of
// exec.Cmd.ExtraFiles.
const lockFD = 3

// envoyFiles is how many files an Envoy is given: the lock.
const envoyFiles = 1

// errAlive says that an Envoy holds the lock.
var errAlive = errors.New("an envoy is alive")

// process is a running Envoy, a child of ours or not.
type process struct {
	pid     int
	adopted bool
	began   time.Time
	log     int64         // where its output begins in the log, unless that was bounded since
	exited  chan struct{} // closed at its end
	how     string        // it ended; set before exited is closed
}

// takeLock opens and locks the file that every Envoy of this run directory holds.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open proxy lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errAlive
	}
	return nil, errors.Join(err, f.Close())
}

// spawn starts Envoy in a session of its own, with the lock, its output going to
// the log. What it makes is not for everybody.
func (s *Supervisor) spawn(binary string, args []string, lock, log *os.File) (*process, error) {
	files, argv := []*os.File{lock}, append([]string{binary}, args...)
	cmd := confine.Same(binary, argv, files)
	if u := s.config.User; !u.same() {
		file, err := openPath(binary, 0)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		dir, err := openPath(s.config.RunDir, unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		cmd = confine.Command(confine.Program{
			File: file, Name: binaryName, Dir: dir, UID: u.UID, GID: u.GID, Args: argv, Files: files,
		})
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	p := &process{pid: cmd.Process.Pid, began: s.config.Now(), exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		p.how = cmd.ProcessState.String()
		close(p.exited)
	}()
	return p, nil
}

// openPath opens a file for no more than to name it.
func openPath(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// adopt watches an Envoy that somebody else started. ours says whether the process
// with the number is that Envoy.
func adopt(pid int, ours func() bool, now time.Time) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	// The process that has the number now is the one that the descriptor stands for.
	if !ours() {
		return nil, errors.Join(fmt.Errorf("process %d: %w", pid, fs.ErrNotExist), unix.Close(fd))
	}
	p := &process{pid: pid, adopted: true, began: now, exited: make(chan struct{})}
	go func() {
		defer unix.Close(fd)
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		p.how = "exited; its status is not known, because another agent started it"
		close(p.exited)
	}()
	return p, nil
}

// holds says whether a process holds the lock as an Envoy does. Its name is not enough: in a mount
// namespace of one's own everybody may have such a file.
func holds(pid int, lockPath string) bool {
	fd := fmt.Sprintf("/proc/%d/fd/%d", pid, lockFD)
	if name, err := os.Readlink(fd); err != nil || name != lockPath {
		return false // nothing is asked of file systems that may not answer
	}
	own, err := os.Stat(lockPath)
	if err != nil {
		return false
	}
	its, err := os.Stat(fd)
	return err == nil && os.SameFile(own, its)
}

// holder finds the process that holds the lock, 0 for none.
func holder(lockPath string) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && holds(pid, lockPath) {
			return pid
		}
	}
	return 0
}

// startOf is when a process was started, in clock ticks since the boot: field 22 of
// proc_pid_stat. 0: it is not known. With the number it is a process for good.
func startOf(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name is in parentheses and may hold anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0
	}
	n, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// signal sends a signal to the process, if it is still the one that we know.
func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.exited:
	default:
		_ = syscall.Kill(p.pid, s)
	}
}

// stop ends the process: SIGTERM, and SIGKILL after grace.
func (p *process) stop(ctx context.Context, grace time.Duration) {
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// resident is the resident memory of a process in bytes, 0 if it is not known.
func resident(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// realPath is a path as /proc shows it.
func realPath(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}
