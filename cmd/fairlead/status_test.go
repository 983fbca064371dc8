package main

import (
	"log/slog"
	"net"
	"strings"
	"testing"
)

// Who starts a second plane is told so, not only that a port is taken.
func TestConsoleInUse(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	for prefix, says := range map[string][]string{
		"":       {address, "--console-address", "another agent"},
		"agent-": {address, "(--agent-console-address chooses", "another agent"},
	} {
		_, err := listenConsole(address, "agent", prefix, log)
		for _, part := range says {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("prefix %q: %v does not say %q", prefix, err, part)
			}
		}
	}
	l, err := listenConsole("127.0.0.1:0", "plane", "", log)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
