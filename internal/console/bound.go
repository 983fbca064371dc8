package console

import (
	"bytes"
	"net/http"
	"sync"
	"time"
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
	// answerWait is how long a question waits for those before it.
	answerWait = 5 * time.Second
	// quickTime is how long the sending of an answer may take before its reader is a slow one.
	quickTime = 500 * time.Millisecond
	// readTime is how long the reader of an answer may take, and so much longer for each megabyte.
	readTime = 5 * time.Second
)

// bounded answers so many questions at once. A slow reader makes room for others soon: it is one of a few
// (maxSlow), or its connection ends.
func bounded(next http.Handler, most int) http.Handler {
	quick, slow := make(chan struct{}, most), make(chan struct{}, maxSlow)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(answerWait)
		defer timer.Stop()
		select {
		case quick <- struct{}{}:
		case <-r.Context().Done():
			return
		case <-timer.C:
			w.Header().Set("Retry-After", "5")
			http.Error(w, "this console answers others: ask again", http.StatusServiceUnavailable)
			return
		}
		s := &slotted{ResponseWriter: w, held: quick, slow: slow}
		defer s.release()
		next.ServeHTTP(s, r)
	})
}

// slotted is an answer with one of the slots for answers that are made or sent.
type slotted struct {
	http.ResponseWriter
	slow chan struct{} // slots of slow readers

	mu   sync.Mutex
	held chan struct{} // its slot is one of these; nil once it is released
}

// Unwrap is for http.ResponseController.
func (s *slotted) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *slotted) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	<-s.held
	s.held = nil
}

// slowDown exchanges the slot for one of slow readers. It is false when there is none.
func (s *slotted) slowDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return true
	}
	select {
	case s.slow <- struct{}{}:
		<-s.held
		s.held = s.slow
		return true
	default:
		return false
	}
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
