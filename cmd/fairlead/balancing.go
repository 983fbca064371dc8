package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/agent"
	"fairlead.dev/internal/model"
)

const (
	defaultBPFDir = "/sys/fs/bpf/fairlead"
	planeAuto     = "auto"
	planeNone     = "none"
)

// balancingFlags are what an agent is told about the data planes of its machine.
type balancingFlags struct {
	plane      string
	interfaces []string
	bpfDir     string
	flows      uint32
	sysctls    string // where the kernel's network settings are
	runDir     string // of the agent
	addresses  func() ([]netip.Addr, error)
}

func (f *balancingFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.plane, "data-plane", planeAuto, "data plane that balances flows in the kernel: auto (the first of xdp, nftables and ipvs that this machine supports), xdp, nftables, ipvs, or none")
	flags.StringSliceVar(&f.interfaces, "lb-interfaces", nil, "interfaces on which packets of clients and tunnels arrive (default: external interfaces with an address of this machine)")
	flags.StringVar(&f.bpfDir, "bpf-dir", defaultBPFDir, "bpffs directory for the programs, maps and links that outlive this process")
	flags.Uint32Var(&f.flows, "lb-flows", 0, "capacity of the XDP flow table, in flows (default: 131072 or 1048576, depending on the memory)")
	complete(c, "data-plane", planeNames()...)
}

// planeNames are the values of --data-plane.
func planeNames() []string {
	names := []string{planeAuto, planeNone}
	for _, kind := range []model.DataPlaneKind{model.DataPlaneXDP, model.DataPlaneNFTables, model.DataPlaneIPVS} {
		names = append(names, strings.ToLower(string(kind)))
	}
	return names
}

func (f *balancingFlags) check() error {
	if names := planeNames(); !slices.Contains(names, f.plane) {
		return usageError{err: fmt.Errorf("--data-plane %q: want %s", f.plane, alternatives(names))}
	}
	for _, name := range f.interfaces {
		if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ ") { // IFNAMSIZ, with its NUL
			return usageError{err: fmt.Errorf("--lb-interfaces %q: want names of interfaces, say eth0,eth1", name)}
		}
	}
	if !strings.HasPrefix(f.bpfDir, "/") {
		return usageError{err: fmt.Errorf("--bpf-dir %q: want a path from the root, say %s", f.bpfDir, defaultBPFDir)}
	}
	return nil
}

// closable is a data plane that can leave the kernel as it is, or clean it up.
type closable interface {
	agent.DataPlane
	Close(leave bool) error
}

// planeMaker makes the data plane of a kind. changed does not block.
type planeMaker struct {
	kind model.DataPlaneKind
	make func(f *balancingFlags, log *slog.Logger, changed func()) (closable, error)
}

func (m planeMaker) name() string { return strings.ToLower(string(m.kind)) }

// newBalancing makes the data planes that the machine may use, the preferred first, and
// what ends them. One that cannot be made says why of each frontend.
func newBalancing(f *balancingFlags, log *slog.Logger) (b agent.Balancing, end func(leave bool) error) {
	b.Changed = make(chan struct{}, 1)
	changed := func() {
		select {
		case b.Changed <- struct{}{}:
		default:
		}
	}
	var ends []func(leave bool) error
	for _, m := range planeMakers {
		if f.plane != planeAuto && f.plane != m.name() {
			continue
		}
		plane, err := m.make(f, log.With("component", m.name()), changed)
		if err != nil {
			log.Info("this machine lacks a data plane", "data_plane", m.name(), "error", err)
			b.Planes = append(b.Planes, agent.BalancingPlane{Kind: m.kind, DataPlane: missingPlane{err}})
			continue
		}
		ends = append(ends, func(leave bool) error { return closeWithin(closeTime, m.kind, plane, leave) })
		b.Planes = append(b.Planes, agent.BalancingPlane{Kind: m.kind, DataPlane: plane})
	}
	return b, func(leave bool) error {
		var errs []error
		for _, end := range ends {
			errs = append(errs, end(leave))
		}
		return errors.Join(errs...)
	}
}

// closeTime is what a data plane gets to end.
const closeTime = 5 * time.Second

// closeWithin ends a data plane, and waits no longer than limit for one that hangs.
func closeWithin(limit time.Duration, kind model.DataPlaneKind, p closable, leave bool) error {
	closed := make(chan error, 1)
	go func() { closed <- p.Close(leave) }()
	select {
	case err := <-closed:
		return err
	case <-time.After(limit):
		return fmt.Errorf("close data plane %s: it did not end within %s; its programs and rules stay in the kernel", kind, limit)
	}
}

// missingPlane is a data plane that this machine does not have.
type missingPlane struct{ why error }

// Run implements agent.DataPlane.
func (missingPlane) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Set implements agent.DataPlane.
func (missingPlane) Set(model.Balancing) error { return nil }

// Observed implements agent.DataPlane.
func (missingPlane) Observed() []model.FrontendObserved { return nil }

// Supports implements agent.DataPlane.
func (m missingPlane) Supports(*model.Balanced) error { return m.why }
