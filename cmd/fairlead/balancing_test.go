package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"fairlead.dev/internal/driver/proxy"
	"fairlead.dev/internal/model"

	"github.com/spf13/cobra"
)

// agentArgs are the flags of an agent that was given these arguments.
func agentArgs(t *testing.T, args ...string) *agentFlags {
	t.Helper()
	f, c := &agentFlags{}, &cobra.Command{}
	f.add(c, "", proxy.Leave)
	if err := c.ParseFlags(append([]string{"--name", "edge-1"}, args...)); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestBalancingFlags(t *testing.T) {
	for _, good := range [][]string{
		nil,
		{"--data-plane", "none"},
		{"--data-plane", "xdp", "--lb-interfaces", "eth0,eth1", "--bpf-dir", "/run/bpf", "--lb-flows", "1000"},
		{"--data-plane", "nftables", "--role", "backend"},
		{"--data-plane", "ipvs"},
	} {
		if err := agentArgs(t, good...).check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for want, bad := range map[string][]string{
		`--data-plane "XDP": want auto, none, xdp, nftables or ipvs`: {"--data-plane", "XDP"},
		`--lb-interfaces "eth0/1": want names of interfaces`:         {"--lb-interfaces", "eth0/1"},
		`--bpf-dir "bpf": want a path from the root`:                 {"--bpf-dir", "bpf"},
	} {
		err := agentArgs(t, bad...).check()
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, new(usageError)) {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}

// What a machine lacks is said of each frontend, and does not keep the agent from running.
func TestMissingDataPlane(t *testing.T) {
	makers := planeMakers
	t.Cleanup(func() { planeMakers = makers })
	planeMakers = []planeMaker{
		{model.DataPlaneXDP, func(*balancingFlags, *slog.Logger, func()) (closable, error) { return nil, errors.New("no BPF") }},
		{model.DataPlaneNFTables, func(*balancingFlags, *slog.Logger, func()) (closable, error) { return whole{}, nil }},
	}
	b, end := newBalancing(&balancingFlags{plane: planeAuto}, slog.New(slog.DiscardHandler))
	if len(b.Planes) != 2 || b.Planes[0].Supports(nil) == nil || b.Planes[1].Supports(nil) != nil {
		t.Errorf("the data planes are %+v", b.Planes)
	}
	if err := end(true); err == nil || err.Error() != "left: true" {
		t.Errorf("it ended with %v", err)
	}
	for plane, want := range map[string]int{"xdp": 1, "nftables": 1, "ipvs": 0, "none": 0} {
		if b, _ := newBalancing(&balancingFlags{plane: plane}, slog.New(slog.DiscardHandler)); len(b.Planes) != want {
			t.Errorf("--data-plane %s: %+v", plane, b.Planes)
		}
	}
}

// A data plane that hangs does not keep the program from ending, which says what it left.
func TestDataPlaneThatDoesNotClose(t *testing.T) {
	held := make(hanging)
	defer close(held)
	err := closeWithin(0, model.DataPlaneNFTables, held, false)
	if err == nil || err.Error() != "close data plane NFTables: it did not end within 0s; its programs and rules stay in the kernel" {
		t.Errorf("it ended with %v", err)
	}
}

// hanging is a data plane whose Close waits.
type hanging chan struct{}

func (h hanging) Close(bool) error { <-h; return nil }

func (hanging) Run(context.Context) error { return nil }

func (hanging) Set(model.Balancing) error { return nil }

func (hanging) Observed() []model.FrontendObserved { return nil }

func (hanging) Supports(*model.Balanced) error { return nil }

// whole is a data plane that is there.
type whole struct{ missingPlane }

func (whole) Close(leave bool) error {
	if leave {
		return errors.New("left: true")
	}
	return nil
}
