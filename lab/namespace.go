package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on an OS thread that f may move to another network namespace,
// and moves the thread back. A thread that cannot be moved back is thrown away.
//
// It never uses the process's first thread: that one's namespace is what others
// see as the process's.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// While this goroutine holds the first thread, another one gets another.
			done <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("open this thread's network namespace: %w", err)
			return
		}
		defer func() { _ = unix.Close(home) }()
		err = f()
		if back := unix.Setns(home, unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with this goroutine
		done <- err
	}()
	return <-done
}

// inNamespace runs f on a thread that is in the network namespace fd. Sockets
// that f makes and processes that f starts are in it for good; goroutines that f
// starts are not in it.
func inNamespace(fd int, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// WithMounts runs f on a thread that sees, at each of the paths, the directory that is
// its value. Processes that f starts see the same, and nobody else does; goroutines
// that f starts do not.
func WithMounts(directories map[string]string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // see onThread
			done <- WithMounts(directories, f)
			runtime.UnlockOSThread()
			return
		}
		done <- mountAndRun(directories, f)
		// Still locked, the thread ends with this goroutine.
	}()
	return <-done
}

func mountAndRun(directories map[string]string, f func() error) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	for path, dir := range directories {
		if err := unix.Mount(dir, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", dir, path, err)
		}
	}
	return f()
}

// makeNamespace makes a network namespace, runs setup on a thread inside it and
// keeps it at path until removeNamespace.
func makeNamespace(path string, setup func() error) error {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	_ = f.Close()
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace %s: %w", filepath.Base(path), err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep network namespace %s: %w", filepath.Base(path), err)
		}
		return setup()
	})
}

// openNamespace returns a descriptor of the namespace at path.
func openNamespace(path string) (int, error) {
	if _, ok := namespaceInode(path); !ok {
		return -1, fmt.Errorf("open network namespace %s: nothing is mounted there", path)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return fd, nil
}

// sysctls writes kernel settings of the calling thread's network namespace. Keys
// are paths below /proc/sys/net.
func sysctls(settings map[string]string) error {
	for key, value := range settings {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0); err != nil {
			return fmt.Errorf("set net/%s to %s: %w", key, value, err)
		}
	}
	return nil
}
