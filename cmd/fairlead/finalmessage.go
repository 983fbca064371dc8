package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// finalMessageTime is how long the end waits until the final message is written.
const finalMessageTime = 500 * time.Millisecond

// finalMessage says what is left when a second signal ends the process at once, and has end do
// that. ctx is done at the first one. The function that it returns takes it back.
func finalMessage(ctx context.Context, w io.Writer, left string, end func(os.Signal)) func() {
	second := make(chan os.Signal, 1)
	over := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		signal.Notify(second, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(second)
		select {
		case s := <-second:
			said := make(chan struct{})
			go func() {
				defer close(said)
				fmt.Fprintf(w, "fairlead: ended at once: %s; the next start takes over what still runs\n", left)
			}()
			select {
			case <-said:
			case <-time.After(finalMessageTime): // a full pipe that nobody reads
			}
			end(s)
		case <-over:
		}
	})
	return func() {
		forget()
		close(over)
	}
}

// endBy ends this process as the signal does that nobody handles.
func endBy(s os.Signal) {
	signal.Reset(s)
	number, _ := s.(syscall.Signal)
	_ = syscall.Kill(os.Getpid(), number) // our own process takes it
	// Who started it had the signal ignored, as a shell does for what runs in its background.
	os.Exit(128 + int(number))
}
