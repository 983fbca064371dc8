package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/share"
)

const (
	// maxAnswers is how many answers of a kind are made or sent at once: one may have several megabytes, and lives
	// until its reader has it.
	maxAnswers = 16
	// maxFlowAnswers is the same for questions that machines answer. They wait for each other, and for machines that do
	// not answer, so they have slots of their own.
	maxFlowAnswers = 4
	// maxSlow is how many more answers are sent to slow readers.
	maxSlow = 4
	// part of the slots of a kind are one user's, and at least fewest.
	part   = 4
	fewest = 2
	// answerWait is how long a question waits for those before it.
	answerWait = 5 * time.Second
	// quickTime is how long the sending of an answer may take before its reader is a slow one.
	quickTime = 500 * time.Millisecond
	// readTime is how long the reader of an answer may take, and so much longer for each megabyte.
	readTime = 5 * time.Second
)

// slots are those of one kind of answers. Each user has a share, so that one of them leaves others room.
type slots struct {
	*share.Bound
	slow  *share.Bound // of slow readers
	user  func(context.Context) string
	meter *Meter
	kind  kind
}

// Bounds are the slots of all kinds, which the consoles of one process share: it has more than one address.
type Bounds struct{ of, slow map[kind]*share.Bound }

// NewBounds returns the slots of one process.
func NewBounds() *Bounds {
	b := &Bounds{map[kind]*share.Bound{}, map[kind]*share.Bound{}}
	for k, most := range map[kind]int{kindAnswers: maxAnswers, kindFlowAnswers: maxFlowAnswers, kindStreams: maxStreams, kindTaps: model.MaxTaps, kindTop: maxStreams} {
		b.of[k], b.slow[k] = share.New(most, max(most/part, fewest)), share.New(maxSlow, fewest)
	}
	return b
}

// newSlots returns the slots of a kind.
func newSlots(c Config, k kind) slots {
	if c.Bounds == nil {
		c.Bounds = NewBounds()
	}
	s := slots{Bound: c.Bounds.of[k], slow: c.Bounds.slow[k], user: c.User, meter: c.Meter, kind: k}
	if s.user == nil {
		s.user = func(context.Context) string { return "" }
	}
	return s
}

// refuse says which limit was reached.
func (s slots) refuse(w http.ResponseWriter, reached share.Limit, user string) {
	s.meter.refuse(s.kind, reached)
	w.Header().Set("Retry-After", "5")
	if reached == share.OfUser {
		http.Error(w, fmt.Sprintf("user %q has %d %s at this plane, which is the most for one user: %s", user, s.Each(), s.kind.text(), s.kind.advice()), http.StatusTooManyRequests)
		return
	}
	http.Error(w, fmt.Sprintf("there are %d %s, which is the most of all users: ask again", s.All(), s.kind.text()), http.StatusServiceUnavailable)
}

// now has a question answered if there is a slot now.
func (s slots) now(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user := s.user(r.Context())
		release, reached := s.Try(user)
		if reached != share.None {
			s.refuse(w, reached, user)
			return
		}
		defer release()
		defer s.meter.open(s.kind)()
		next.ServeHTTP(w, r)
	}
}

// soon has a question answered when there is a slot, which it waits for. A slow reader makes room for others: it
// is one of a few (maxSlow), or its connection ends.
func (s slots) soon(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerWait)
		defer cancel()
		user := s.user(r.Context())
		release, reached := s.Wait(ctx, user)
		switch {
		case r.Context().Err() != nil && release == nil:
			return
		case release == nil:
			s.refuse(w, reached, user)
			return
		}
		a := &slotted{ResponseWriter: w, user: user, held: release, slow: s.slow}
		defer a.release()
		next.ServeHTTP(a, r)
	})
}

// slotted is an answer with one of the slots for answers that are made or sent.
type slotted struct {
	http.ResponseWriter
	user string
	slow *share.Bound // slots of slow readers

	mu   sync.Mutex
	held func() // releases its slot; nil once it is released
}

// Unwrap is for http.ResponseController.
func (s *slotted) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *slotted) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held()
	s.held = nil
}

// slowDown exchanges the slot for one of slow readers. It is false when there is none.
func (s *slotted) slowDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return true
	}
	release, reached := s.slow.Try(s.user)
	if reached != share.None {
		return false
	}
	s.held()
	s.held = release
	return true
}

// writeBody sends the whole of an answer. It ignores the error: the reader is gone and there is nobody to tell.
func writeBody(w http.ResponseWriter, b []byte) {
	c := http.NewResponseController(w)
	limit := readTime + time.Duration(len(b)>>20)*time.Second
	_ = c.SetWriteDeadline(time.Now().Add(limit)) // where there is a connection
	if s, is := w.(*slotted); is {
		over := make(chan struct{})
		timer := time.AfterFunc(quickTime, func() {
			defer close(over)
			if !s.slowDown() {
				_ = c.SetWriteDeadline(time.Now())
			}
		})
		defer func() {
			if !timer.Stop() {
				<-over // the deadline is not that of the next answer
			}
		}()
	}
	_, _ = w.Write(b)
}

// made has an answer made before any of it is sent: what makes it does not wait for its reader.
func made(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &unsent{header: w.Header(), status: http.StatusOK}
		next.ServeHTTP(a, r)
		w.WriteHeader(a.status)
		writeBody(w, a.body.Bytes())
	})
}

// unsent is an answer in memory.
type unsent struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *unsent) Header() http.Header         { return a.header }
func (a *unsent) WriteHeader(status int)      { a.status = status }
func (a *unsent) Write(b []byte) (int, error) { return a.body.Write(b) }

// crossSite says that a browser asks for a page that is none of the console's. It may not read the answer, but
// questions have a cost, for machines, too.
func crossSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}
