package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// An Envoy that outlived the agent before may run a newer state than is remembered:
// the agent may have been killed before its last writes, or the disk may have been
// full. That Envoy lacks nothing while it waits, so what is remembered is kept from it
// until a plane has sent a whole state. If nobody knows that the memory is older, it
// waits at most withholdTime, so that an unfinished change ends without a plane too;
// otherwise for as long as it takes. A new Envoy has nothing, and is given what is
// remembered at once.
const withholdTime = 10 * time.Second

// withhold says whether an Envoy must wait for what is remembered; lives says that it
// brings clusters. The wait is over when the channel is closed, and at the time; zero:
// no time. granted must be called after it.
func (s *state) withhold(lives bool) (over <-chan struct{}, until time.Time, wait bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.heard:
		return nil, time.Time{}, false
	default:
	}
	if !lives || !s.feed.Remembered() || !s.older && !s.now().Before(s.recalledAt.Add(s.withholdTime)) {
		return nil, time.Time{}, false
	}
	s.withheld++
	if !s.older {
		until = s.recalledAt.Add(s.withholdTime)
	}
	return s.heard, until, true
}

// hear notes that a plane has sent a whole state.
func (s *state) hear() {
	select {
	case <-s.heard:
	default:
		close(s.heard)
	}
}

// granted ends a wait.
func (s *state) granted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld--
}

// withholds says why Envoy waits for what is remembered, empty if it does not.
func (s *state) withholds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.serving && !s.offers():
		return "the proxy serves nothing until a plane answers: the agent before ran without one, and remembers nothing for it"
	case s.withheld == 0:
		return ""
	case s.older:
		return "the proxy runs on with what it has until a plane answers: what is remembered is older"
	default:
		return "the proxy runs on with what it has until a plane answers, for " + s.withholdTime.String() + " at most: what is remembered may be older"
	}
}

// await waits while what is remembered is withheld from the Envoy of the conversation.
func (c *conversation) await(ctx context.Context, lives bool) error {
	r := c.relay
	over, until, wait := r.state.withhold(lives)
	if !wait {
		return nil
	}
	defer r.state.granted()
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(until.Sub(r.state.now()))
		defer timer.Stop()
		late = timer.C
	}
	r.log.Info("what is remembered waits for the plane", "because", r.state.withholds())
	select {
	case <-over:
		return nil
	case <-late:
		r.log.Info("no plane has answered; the proxy is given what is remembered")
		return nil
	case <-ctx.Done():
		return errReplaced
	}
}

// lag is an empty file that is there while the disk may hold an older state than
// Envoy runs. It is in the run directory, which is writable when the disk is full, and
// is gone after a reboot, as Envoy is. The zero lag is never there.
type lag struct {
	path string
	set  bool
}

func newLag(path string) lag {
	_, err := os.Stat(path)
	return lag{path, err == nil}
}

// mark makes or removes the file.
func (l *lag) mark(behind bool) error {
	if l.path == "" || l.set == behind {
		return nil
	}
	if !behind {
		if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("unmark the remembered state as older: %w", err)
		}
		l.set = false
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("mark the remembered state as older: %w", err)
	}
	l.set = true
	return f.Close()
}
