package main

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"

	"fairlead.dev/internal/driver/proxy"
)

// TestProxyOutput: the proxy's lines go to the standard output only where that is wanted, and by a descriptor of their
// own, so that an output that nobody reads does not end the agent by SIGPIPE.
func TestProxyOutput(t *testing.T) {
	if to, err := openOutput(outputFile); to != nil || err != nil {
		t.Errorf("%s gives %v, %v", outputFile, to, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdout
	os.Stdout = w
	to, err := openOutput(outputStdout)
	os.Stdout = was
	if err != nil {
		t.Fatal(err)
	}
	f := to.(*os.File)
	defer f.Close()
	if f.Fd() == w.Fd() || f.Fd() <= 2 {
		t.Errorf("the descriptor is %d", f.Fd())
	}
	if _, err := io.WriteString(to, "a line\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(r).ReadString('\n'); got != "a line\n" {
		t.Errorf("%q came, %v", got, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(to, "another\n"); err == nil {
		t.Error("nobody reads, and that is no error")
	}
	flags := agentFlags{onStop: string(proxy.Leave), proxyOutput: "stderr"}
	if err := flags.check(); err == nil || !strings.Contains(err.Error(), "want file or stdout") {
		t.Errorf("another value gives %v", err)
	}
}
