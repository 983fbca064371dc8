package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// errDeclined is what becomes of a command whose question was not answered with yes.
var errDeclined = errors.New("not confirmed; nothing was changed")

// confirm asks a question that has to be answered with yes, unless --yes did. Where nobody can be
// asked, that is a no.
func confirm(ctx context.Context, c *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	in, is := c.InOrStdin().(*os.File)
	if !is || !term.IsTerminal(int(in.Fd())) { //nolint:gosec // descriptors are small
		return errors.New("standard input is not a terminal, so the command cannot ask: use --yes to continue without confirmation")
	}
	return answer(ctx, in, c.ErrOrStderr(), question)
}

// answer waits for the answer to a question, or for the end of the command.
func answer(ctx context.Context, in io.Reader, w io.Writer, question string) error {
	fmt.Fprintf(w, "%s [y/N] ", question)
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // an end is an answer, too
		said <- line
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case line := <-said:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errDeclined
	}
}
