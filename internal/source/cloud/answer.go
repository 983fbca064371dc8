package cloud

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"fairlead.dev/api/v1alpha1"
)

// answer is the body of an answer, within limits.
type answer struct {
	io.ReadCloser
	t      *Transport
	caller context.Context
	record *Record
	ctx    context.Context // ended by a limit
	cancel context.CancelCauseFunc
	stream bool
	cut    bool  // beyond the limit nothing is read, which is no error
	left   int64 // bytes; not for streams
	idle   time.Duration
	silent *time.Timer // runs during a Read
	whole  *time.Timer
}

// guard puts limits onto the body of an answer. On error the body is closed.
func (t *Transport) guard(caller, ctx context.Context, cancel context.CancelCauseFunc, resp *http.Response, stream bool) error {
	a := &answer{
		ReadCloser: resp.Body, t: t, caller: caller, record: recordOf(caller), ctx: ctx, cancel: cancel,
		stream: stream, left: t.config.AnswerBytes, idle: t.config.IdleTimeout,
	}
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		a.stream, a.cut, a.left = false, true, min(a.left, errorBytes)
	case stream:
		a.idle = t.config.StreamTimeout
	case resp.ContentLength > a.left:
		_ = resp.Body.Close()
		cancel(nil)
		return t.fail(caller, a.tooLarge())
	}
	what := "the answer"
	if a.stream {
		what = "the stream"
	}
	a.silent = time.AfterFunc(a.idle, func() { cancel(Timeout("no byte of %s within %s", what, a.idle)) })
	a.silent.Stop()
	if !a.stream {
		a.whole = time.AfterFunc(t.config.AnswerTimeout, func() {
			cancel(Timeout("the answer takes longer than %s", t.config.AnswerTimeout))
		})
	}
	resp.Body = a
	return nil
}

func (a *answer) tooLarge() error {
	return BadAnswer("the answer is larger than %d MiB (spec.limits.answerMiB)", a.t.config.AnswerBytes>>20)
}

// Read reads within the limits.
func (a *answer) Read(p []byte) (int, error) {
	if a.cut && a.left <= 0 {
		return 0, io.EOF
	}
	// One byte more than allowed tells an answer that is too large from one that is just as large.
	if !a.stream && int64(len(p)) > a.left+1 {
		p = p[:a.left+1]
	}
	a.silent.Reset(a.idle)
	n, err := a.ReadCloser.Read(p)
	a.silent.Stop()
	a.t.counters.Bytes.Add(uint64(n))
	a.record.bytes.Add(int64(n))
	if !a.stream {
		a.left -= int64(n)
		if a.left < 0 && a.cut {
			return n, io.EOF
		}
		if a.left < 0 {
			err := a.tooLarge()
			a.cancel(err)
			return n - 1, a.t.fail(a.caller, err)
		}
	}
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		a.stop()
		return n, io.EOF
	}
	err = because(a.ctx, err)
	var e *Error
	if a.stream && !errors.As(err, &e) && isIncomplete(err) {
		// The connection of a stream is lost sooner or later; its answer is none the worse.
		err = &Error{Reason: v1alpha1.ReasonUnreachable, Err: err}
	}
	return n, a.t.fail(a.caller, err)
}

func (a *answer) stop() {
	a.silent.Stop()
	if a.whole != nil {
		a.whole.Stop()
	}
}

// Close ends the answer.
func (a *answer) Close() error {
	a.stop()
	err := a.ReadCloser.Close()
	a.cancel(nil)
	return err
}
