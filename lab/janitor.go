package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The janitor is this very program, started again with these arguments followed
// by the labs' directory, the lab's name and its id. Descriptor 3 is a pipe that
// its owner holds open, descriptor 4 is where it says that it is there.
var janitorArgs = []string{"lab", "janitor"}

const (
	janitorDone  = "done"
	janitorReady = "ready"
	// janitorStart is how long a janitor may take to say that it is there: a big
	// program on a busy host takes its time to start.
	janitorStart = 30 * time.Second
)

// hooked is set once the program has shown that it calls MaybeJanitor. Without it
// a janitor would be the program itself once more.
var hooked atomic.Bool

// MaybeJanitor turns this process into a lab's janitor if that is what it was
// started for, and then does not return. A program that calls Up calls it first
// thing in main, a test in TestMain.
func MaybeJanitor() {
	hooked.Store(true)
	if len(os.Args) != 6 || os.Args[1] != janitorArgs[0] || os.Args[2] != janitorArgs[1] {
		return
	}
	if err := keepWatch(os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, "lab janitor:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keepWatch waits until the owner is gone and then sweeps the lab, unless the
// owner said that it had.
func keepWatch(dir, name, id string) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	owner, ready := os.NewFile(3, "owner"), os.NewFile(4, "ready")
	if owner == nil || ready == nil {
		return errors.New("it is started by a lab, not by hand")
	}
	if _, err := ready.WriteString(janitorReady); err != nil {
		return fmt.Errorf("say that it is there: %w", err)
	}
	_ = ready.Close()
	said, err := io.ReadAll(owner)
	if err != nil {
		return fmt.Errorf("watch the owner: %w", err)
	}
	if string(said) == janitorDone {
		return nil
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := Read(dir, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.ID != id {
		return nil // swept already, by hand or by the next lab of the name
	}
	if err != nil {
		return err
	}
	return sweep(s)
}

// janitor is the owner's side.
type janitor struct {
	pid  Pid
	pipe *os.File
	exit chan struct{} // closed when the process is gone
}

// startJanitor returns once the janitor of the lab keeps watch.
func startJanitor(s State) (*janitor, error) {
	if !hooked.Load() {
		return nil, errors.New("start the janitor: this program's main does not call lab.MaybeJanitor")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	watched, pipe, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	defer func() { _ = watched.Close() }()
	heard, ready, err := os.Pipe()
	if err != nil {
		_ = pipe.Close()
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	defer func() { _ = heard.Close() }()
	logFile, err := os.OpenFile(filepath.Join(s.dir, "janitor.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		_, _ = pipe.Close(), ready.Close()
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	defer func() { _ = logFile.Close() }()

	cmd := exec.Command(self, append(append([]string{}, janitorArgs...), filepath.Dir(s.dir), s.Name, s.ID)...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{watched, ready}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the owner
	err = cmd.Start()
	_ = ready.Close()
	if err != nil {
		_ = pipe.Close()
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	j := &janitor{pipe: pipe, exit: make(chan struct{})}
	j.pid, err = PidOf(cmd.Process.Pid)
	go func() {
		_ = cmd.Wait()
		close(j.exit)
	}()
	if err == nil {
		_ = heard.SetReadDeadline(time.Now().Add(janitorStart))
		said := make([]byte, len(janitorReady))
		_, err = io.ReadFull(heard, said)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		<-j.exit
		_ = pipe.Close()
		return nil, fmt.Errorf("start the janitor: it did not say that it was there: %w", err)
	}
	return j, nil
}

// dismiss tells the janitor that there is nothing to sweep and waits for its end.
func (j *janitor) dismiss(ctx context.Context) error {
	_, _ = j.pipe.WriteString(janitorDone)
	_ = j.pipe.Close()
	select {
	case <-j.exit:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the janitor: %w", ctx.Err())
	}
}

// mindJanitor replaces a janitor that was killed while the lab is up.
func (l *Lab) mindJanitor(j *janitor) {
	for {
		<-j.exit
		l.mu.Lock()
		if l.down {
			l.mu.Unlock()
			return
		}
		next, err := startJanitor(l.state)
		if err == nil {
			_ = l.janitor.pipe.Close()
			l.janitor, l.state.Janitor = next, next.pid
			err = l.state.write()
		}
		l.mu.Unlock()
		if err != nil {
			l.options.Log.Error("the lab has no janitor any more", "lab", l.state.Name, "error", err)
			return
		}
		l.options.Log.Warn("the lab's janitor was killed and replaced", "lab", l.state.Name)
		j = next
	}
}
