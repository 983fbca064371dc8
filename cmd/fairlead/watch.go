package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
)

// How long a broken stream waits until it is taken up again: twice as long each time.
const (
	watchAgain     = 250 * time.Millisecond
	watchAgainMost = 5 * time.Second
)

// watcher shows a list of a plane, and its changes.
type watcher struct {
	path, namespace string
	// connect finds the plane, again after a stream is broken: another one may lead by then.
	connect func() (console.Client, error)
	show    func(console.Watched) error
	notes   io.Writer
	wait    func(ctx context.Context, d time.Duration) error
}

// connector finds a plane for a watcher. One that was asked at its console is asked there again.
func connector(c *cobra.Command, address string) func() (console.Client, error) {
	var last console.Client
	return func() (console.Client, error) {
		if last.URL != "" && !strings.HasPrefix(last.URL, "https://") {
			return last, nil
		}
		client, err := planeClient(c, address)
		if err == nil {
			last = client
		}
		return client, err
	}
}

// run shows the list until ctx is done, show fails, or the plane refuses. A stream that is broken is taken up again where it was.
func (w *watcher) run(ctx context.Context) error {
	after, begun, broken, again := "", false, false, watchAgain
	for {
		var unshown error
		client, err := w.connect()
		if err == nil {
			err = client.Watch(ctx, w.path, w.namespace, after, func(told console.Watched) error {
				if broken {
					fmt.Fprintln(w.notes, "the plane answers again")
				}
				after, begun, broken, again = told.ID, true, false, watchAgain
				unshown = w.show(told)
				return unshown
			})
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case unshown != nil:
			return unshown
		case !begun || final(err):
			return advised(err)
		case !broken:
			broken = true
			why := ""
			if none, is := errors.AsType[console.NoAnswerError](err); !is || !errors.Is(none.Err, io.ErrUnexpectedEOF) {
				why = ": " + console.PlainText(err.Error())
			}
			fmt.Fprintf(w.notes, "the stream has ended, and goes on as soon as a plane answers%s\n", why)
		}
		if w.wait(ctx, again) != nil {
			return nil
		}
		again = min(2*again, watchAgainMost)
	}
}

// final says that a question has no other answer if it is put again.
func final(err error) bool {
	var answer console.AnswerError
	return errors.As(err, &answer) && (answer.Refused() || errors.Is(err, console.ErrNone) || errors.Is(err, console.ErrQuestion))
}

// pause waits for a time, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
