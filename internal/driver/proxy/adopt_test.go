package proxy

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

func TestLeavesEnvoyToTheNextSupervisor(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := configure(t, dir)
	first := begin(t, c)
	pid := first.ready(1)
	first.stop()
	alive(t, pid)

	second := begin(t, c)
	if adopted := second.ready(0); adopted != pid {
		t.Fatalf("process %d was not adopted, %d is there", pid, adopted)
	}
	wantHolders(t, dir, pid)
	// An adopted one is no child, and its end is seen all the same.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	own := second.ready(1)
	wantHolders(t, dir, own)
	second.stop()

	// It follows another machine's agent: it is replaced, and never are there two.
	c.NodeID, c.OnStop = "edge-2", Drain
	third := begin(t, c)
	replaced := third.seen("it is replaced", func(st model.ProxyStatus) bool { return st.State == Backoff })
	contains(t, replaced.Message, strconv.Itoa(own), "was configured for another agent")
	last := third.ready(1)
	gone(t, own)
	wantHolders(t, dir, last)
	third.stop()
	gone(t, last)
}

// TestAdoptsAnEnvoyThatShowsNothing: one whose binary has capabilities does not let
// its user look at its descriptors. Here it has the lock under another one.
func TestAdoptsAnEnvoyThatShowsNothing(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := script(t, dir, "exec 4<&3 3<&-\nexec sleep 1000")
	c.OnStop = Leave
	first := begin(t, c)
	first.seen("it is started", func(st model.ProxyStatus) bool { return st.Starts == 1 })
	first.stop()
	n := first.s.noted()
	if n == nil || !n.alive() {
		t.Fatalf("it is noted as %+v", n)
	}
	t.Cleanup(func() { _ = syscall.Kill(n.PID, syscall.SIGKILL) })
	eventually(t, "it shows nothing", func() bool { return len(holders(t, dir)) == 0 })

	second := begin(t, c)
	st := second.seen("it is adopted", func(st model.ProxyStatus) bool {
		return strings.Contains(st.Message, "does not answer") || st.State == Backoff
	})
	if st.State == Backoff || st.Starts != 0 {
		t.Fatalf("it is not adopted: %+v", st)
	}
	if err := syscall.Kill(n.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second.seen("it is missed", func(st model.ProxyStatus) bool { return st.Starts == 1 })
	second.stop()
	if own := second.s.noted(); own != nil && own.PID != n.PID {
		_ = syscall.Kill(own.PID, syscall.SIGKILL)
	}
}

func TestReplacesAnEnvoyThatHangs(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := configure(t, dir)
	c.HungAfter = time.Second
	first := begin(t, c)
	hung := first.ready(1)
	first.stop()
	if err := syscall.Kill(hung, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.OnStop = Drain
	second := begin(t, c)
	st := second.seen("it is ended", func(st model.ProxyStatus) bool { return st.State == Backoff })
	contains(t, st.Message, strconv.Itoa(hung), "neither answered nor ran for 1s and was ended")
	wantHolders(t, dir, second.ready(1))
	gone(t, hung)
}

// mute puts a socket that takes connections and says nothing in the place of Envoy's
// admin interface. asked counts them.
func mute(t *testing.T, path string) (asked func() int64, speak func()) {
	t.Helper()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var n atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			go func() {
				_, _ = io.Copy(io.Discard, c) // until the supervisor gives up
				_ = c.Close()
			}()
		}
	}()
	return n.Load, func() {
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeepsAnEnvoyThatIsSlowToAnswer: its main thread is busy, and traffic goes on.
func TestKeepsAnEnvoyThatIsSlowToAnswer(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := configure(t, dir)
	first := begin(t, c)
	pid := first.ready(1)
	first.stop()

	asked, speak := mute(t, filepath.Join(dir, "admin.sock"))
	second := begin(t, c)
	st := second.seen("it is adopted or ended", func(st model.ProxyStatus) bool {
		return strings.Contains(st.Message, "runs and does not answer") || st.State == Backoff
	})
	if st.State == Backoff || st.Starts != 0 {
		t.Fatalf("it is not kept: %+v", st)
	}
	was := asked()
	eventually(t, "it is asked again and again", func() bool { return asked() >= was+3 })
	alive(t, pid)
	speak()
	if adopted := second.ready(0); adopted != pid {
		t.Fatalf("process %d took the place of %d", adopted, pid)
	}
}
