// Command fairlead is the whole product in one binary: the plane, the agent, the
// lab, and verbs for people. This package wires and parses flags; it decides
// nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"fairlead.dev/lab"
)

// As fairlead-confine or fairlead-start the binary never comes here: internal/driver/proxy/confine takes over
// while packages initialise.
func main() {
	lab.MaybeJanitor()
	os.Exit(run())
}

// run returns the exit status: 0 is success, 1 a failure that was printed, 2 a
// command line that cannot be understood.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C ends the process at once.
	context.AfterFunc(ctx, stop)

	err := newRoot().ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		complain(os.Stderr, err)
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", usage.command)
		return 2
	default:
		complain(os.Stderr, err)
		return 1
	}
}

// ended is why something ended, after what went wrong while it was stopped: the last line
// of a failure is read first, and has to be the cause.
func ended(cause error, stops ...error) error { return errors.Join(append(stops, cause)...) }

// complain prints an error. One that is made of several has a line for each, and each of
// them says who speaks: the last line is read first, and may stand after those of a log. A
// line that comes again stands where it comes last.
func complain(w io.Writer, err error) {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	for i, line := range lines {
		if line != "" && !slices.Contains(lines[i+1:], line) {
			fmt.Fprintf(w, "fairlead: %s\n", line)
		}
	}
}
