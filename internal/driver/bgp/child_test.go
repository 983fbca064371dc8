package bgp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/uml"
)

// asSpeaker makes this test binary a speaker that is told what to do on standard input: a speaker in a network
// namespace, and one that dies, must be processes of their own.
const asSpeaker = "FAIRLEAD_BGP_TEST_SPEAKER"

// stateDir is where the child keeps its BFD sessions.
const stateDir = "FAIRLEAD_BGP_TEST_STATE"

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	if os.Getenv(asSpeaker) != "" {
		childMain()
		return
	}
	if uml.Inside() {
		uml.Finish(m.Run())
	}
	os.Exit(m.Run())
}

// order is a line to the child.
type order struct {
	Set       *Speaking
	Passwords map[string]string // of the peers: they do not marshal
	Withdraw  bool
	Stop      string // "leave" or "cease"
}

// answer is a line from the child.
type answer struct {
	Sessions []model.Session
	Done     string // the order that is done
}

func childMain() {
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	say := func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(a)
	}
	changed := make(chan struct{}, 1)
	s := New(Config{
		StateDir: os.Getenv(stateDir),
		Log:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Changed: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	s.Resume()
	go func() {
		for range changed {
			say(answer{Sessions: s.Sessions()})
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx)
	}()
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if in.Decode(&o) != nil {
			os.Exit(0)
		}
		switch {
		case o.Set != nil:
			for i := range o.Set.Peers {
				p := &o.Set.Peers[i]
				p.Password = model.Redacted(o.Passwords[p.Name])
			}
			s.Set(*o.Set)
		case o.Withdraw:
			wait, stop := context.WithTimeout(ctx, patience)
			if err := s.Withdraw(wait); err != nil {
				fmt.Fprintln(os.Stderr, "withdraw:", err)
			} else {
				say(answer{Done: "withdraw"})
			}
			stop()
		case o.Stop != "":
			s.StopPolicy(o.Stop == "leave")
			cancel()
			<-ended
			say(answer{Done: o.Stop})
			os.Exit(0)
		}
	}
}

// child is a speaker in a machine of the lab.
type child struct {
	t    *testing.T
	cmd  *lab.Command
	in   *json.Encoder
	wake chan struct{}
	gone chan struct{}

	mu   sync.Mutex
	last []model.Session
	seen []model.Session // every status of every session
	done map[string]bool
}

func startChild(t *testing.T, m *lab.Machine, w Speaking) *child {
	t.Helper()
	return startChildIn(t, m, w, "")
}

// startChildIn starts a child that keeps its BFD sessions in a directory.
func startChildIn(t *testing.T, m *lab.Machine, w Speaking, dir string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, wake: make(chan struct{}, 1), gone: make(chan struct{}), done: map[string]bool{}}
	c.cmd = m.Command(context.Background(), self)
	c.cmd.Env = append(os.Environ(), asSpeaker+"=1", stateDir+"="+dir)
	c.cmd.Stderr = t.Output()
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.in = json.NewEncoder(stdin)
	go c.read(stdout)
	t.Cleanup(c.kill)
	c.set(w)
	return c
}

func (c *child) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			continue
		}
		c.mu.Lock()
		if a.Done != "" {
			c.done[a.Done] = true
		} else {
			c.last = a.Sessions
			c.seen = append(c.seen, a.Sessions...)
		}
		c.mu.Unlock()
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	_ = c.cmd.Wait()
	close(c.gone)
}

// kill ends the child without a word.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.gone
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) tell(o order) {
	c.t.Helper()
	if err := c.in.Encode(o); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) set(w Speaking) {
	c.t.Helper()
	passwords := map[string]string{}
	for _, p := range w.Peers {
		passwords[p.Name] = string(p.Password)
	}
	c.tell(order{Set: &w, Passwords: passwords})
}

// stop ends the child by a policy and waits for it.
func (c *child) stop(policy string) {
	c.t.Helper()
	c.tell(order{Stop: policy})
	c.wait("stop "+policy, func() bool { return c.done[policy] })
	<-c.gone
}

func (c *child) withdraw() {
	c.t.Helper()
	c.tell(order{Withdraw: true})
	c.wait("withdraw", func() bool { return c.done["withdraw"] })
}

// wait waits until ok, which is called with the lock held.
func (c *child) wait(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		c.mu.Lock()
		fine, last := ok(), c.last
		c.mu.Unlock()
		if fine {
			return
		}
		select {
		case <-c.wake:
		case <-deadline:
			c.t.Fatalf("the speaker did not come to: %s\nlast seen: %+v", what, last)
		}
	}
}

// until waits for the session as wanted now, and returns it.
func (c *child) until(what string, ok func(model.Session) bool) (out model.Session) {
	c.t.Helper()
	c.wait(what, func() bool {
		i := slices.IndexFunc(c.last, ok)
		if i >= 0 {
			out = c.last[i]
		}
		return i >= 0
	})
	return out
}

// saw waits for a status that may pass quickly.
func (c *child) saw(reason model.SessionReason) (out model.Session) {
	c.t.Helper()
	c.wait("reason "+string(reason), func() bool {
		i := slices.IndexFunc(c.seen, func(s model.Session) bool { return s.Reason == reason })
		if i >= 0 {
			out = c.seen[i]
		}
		return i >= 0
	})
	return out
}

func (c *child) established() model.Session {
	c.t.Helper()
	return c.until("established", func(s model.Session) bool { return s.State == model.SessionEstablished })
}
