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
	"strings"
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
		complain(os.Stderr, err)
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", usage.command)
		return 2
	default:
		complain(os.Stderr, err)
		return 1
	}
}

// complain prints an error. One that is made of several has a line for each, and each of
// them says who speaks: the last line is read first, and may stand after those of a log.
func complain(w io.Writer, err error) {
	said := map[string]bool{}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line = strings.TrimRight(line, " "); line != "" && !said[line] {
			said[line] = true
			fmt.Fprintf(w, "fairlead: %s\n", line)
		}
	}
}
