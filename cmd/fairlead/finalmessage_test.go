package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A second Ctrl-C says what it leaves; the first one, and an orderly end, say nothing.
func TestFinalMessage(t *testing.T) {
	caught := make(chan os.Signal, 1) // or the test itself would be ended
	signal.Notify(caught, os.Interrupt)
	defer signal.Stop(caught)
	ctx, first := context.WithCancel(t.Context())
	ended := make(chan os.Signal)
	var out strings.Builder
	over := finalMessage(ctx, &out, "Envoy runs on", func(s os.Signal) { ended <- s })
	defer over()
	interrupt := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-caught
	}
	interrupt()
	first()
	again := time.NewTicker(50 * time.Millisecond) // it listens a moment after the first
	defer again.Stop()
	for {
		select {
		case s := <-ended:
			if want := "fairlead: ended at once: Envoy runs on; the next start takes over what still runs\n"; s != os.Interrupt || out.String() != want {
				t.Errorf("ended by %v, saying %q", s, out.String())
			}
			return
		case <-again.C:
			interrupt()
		}
	}
}

// An orderly end says nothing and waits for nothing.
func TestNoFinalMessage(t *testing.T) {
	ctx, first := context.WithCancel(t.Context())
	var out strings.Builder
	finalMessage(ctx, &out, "", func(os.Signal) { t.Error("it was ended") })()
	first()
	over := finalMessage(ctx, &out, "", func(os.Signal) { t.Error("it was ended") })
	over()
	if out.Len() > 0 {
		t.Errorf("it says %q", out.String())
	}
}

// A second Ctrl-C ends the process also where nobody reads its standard error.
func TestFinalMessageThatNobodyReads(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	defer signal.Stop(caught)
	unread, stuck := io.Pipe()
	defer unread.Close()
	ctx, first := context.WithCancel(t.Context())
	ended := make(chan struct{}, 1)
	defer finalMessage(ctx, stuck, "Envoy runs on", func(os.Signal) { ended <- struct{}{} })()
	first()
	again := time.NewTicker(50 * time.Millisecond) // it listens a moment after the first
	defer again.Stop()
	for end := time.After(10 * time.Second); ; {
		select {
		case <-ended:
			return
		case <-again.C:
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			<-caught
		case <-end:
			t.Fatal("many signals, and it goes on")
		}
	}
}
