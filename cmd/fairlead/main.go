// Command fairlead is the whole product in one binary: the plane, the agent, the
// lab, and verbs for people. This package wires and parses flags; it decides
// nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"fairlead.dev/lab"
)

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
		fmt.Fprintf(os.Stderr, "fairlead: %v\nRun '%s --help' for usage.\n", err, usage.command)
		return 2
	default:
		fmt.Fprintf(os.Stderr, "fairlead: %v\n", err)
		return 1
	}
}
