package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// backendPort is where the backends of `lab up` answer.
const backendPort = 8080

// keepReady is what a keeper says when its lab is up.
const keepReady = "ready"

// routerASN is the autonomous system of the router of `lab up`.
const routerASN = 65000

func newUp() *cobra.Command {
	var name, output, kind string
	c := &cobra.Command{
		Use:   "up",
		Short: "Build a lab and leave it running",
		Long: `Build a lab and leave it running until 'lab down': a client, two edges, a machine for a
plane, and two clusters of backends, k8s1 (three) and os1 (two). The backends already run,
and answer with their names at port 8080 of their addresses.

With --router the client is on its own segment, and a router connects it to the others.
Every machine on the edges' segment may announce addresses to the router by BGP, with or
without BFD, from any autonomous system except the router's own, 65000.

A lab keeper stays in the background. When it ends for any reason, the lab ends too.`,
		Example: `  fairlead lab up
  fairlead lab exec client -- curl -s http://10.77.4.1:8080/
  fairlead lab up --name routed --router frr
  fairlead lab down --all`,
		RunE: func(c *cobra.Command, _ []string) error {
			if kind != noRouter {
				if err := router.Kind(kind).Find(); err != nil {
					return fmt.Errorf("--router: %w", err)
				}
			}
			if err := up(c.Context(), name, kind); err != nil {
				return err
			}
			s, err := lab.Read(lab.DefaultDir, name)
			if err != nil {
				return err
			}
			return show(c.Context(), c.OutOrStdout(), output, []lab.State{s})
		},
	}
	nameFlag(c, &name)
	routerFlag(c, &kind)
	outputFlag(c, &output)
	return c
}

// noRouter is the value of --router that stands for none.
const noRouter = "none"

// routerFlag says which router there is between clients and edges.
func routerFlag(c *cobra.Command, kind *string) {
	kinds := []string{noRouter}
	for _, k := range router.Kinds() {
		kinds = append(kinds, string(k))
	}
	c.Flags().StringVar(kind, "router", noRouter, "router between the client and the others: "+strings.Join(kinds, ", "))
	must(c.RegisterFlagCompletionFunc("router", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp)))
}

// startRouter runs a router that any machine of the edges' segment may peer with.
func startRouter(ctx context.Context, k router.Kind, m *lab.Machine) error {
	id, _, _ := m.On(lab.SegmentEdges)
	net4, net6, _ := m.Networks(lab.SegmentEdges)
	peering := router.Peering{Families: []router.Family{router.IPv4, router.IPv6}, BFD: &router.BFD{}, Helper: true}
	_, err := router.Start(ctx, k, m, router.Config{
		ASN: routerASN, ID: id, Ranges: []router.Range{{Prefix: net4, Peering: peering}, {Prefix: net6, Peering: peering}},
	})
	return err
}

// up starts a keeper and returns when its lab is up. If ctx ends first, the
// keeper is asked to end.
func up(ctx context.Context, name, kind string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	said, says, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	defer func() { _ = said.Close() }()
	keeper := exec.Command(self, "lab", "keep", "--name", name, "--router", kind)
	keeper.Dir = "/"
	keeper.Stdout = says
	keeper.Stderr = says
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives this command and its terminal
	err = keeper.Start()
	_ = says.Close()
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = keeper.Process.Signal(syscall.SIGTERM) })()
	var heard []string
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if lines.Text() == keepReady {
			return keeper.Process.Release()
		}
		heard = append(heard, strings.TrimPrefix(lines.Text(), "fairlead: "))
	}
	err = keeper.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the lab's keeper ended (%w): %s", err, strings.Join(heard, "; "))
}

// newKeep is the process that owns a lab of `lab up`.
func newKeep() *cobra.Command {
	var name, kind string
	c := &cobra.Command{
		Use:    "keep",
		Short:  "Own a lab until SIGTERM",
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			topology := lab.DefaultTopology(name)
			if kind != noRouter {
				topology = lab.RoutedTopology(name)
			}
			l, err := lab.Up(c.Context(), topology, options(c))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, finish(c.Context(), l.Down)) }()
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			r := &rig.Rig{Lab: l, Binary: self, Now: time.Now}
			for _, m := range l.Machines(lab.RoleBackends) {
				if _, err := r.StartBackends(c.Context(), m, slices.Concat(m.Addrs4(), m.Addrs6()), backendPort); err != nil {
					return err
				}
			}
			for _, m := range l.Machines(lab.RoleRouter) {
				if err := startRouter(c.Context(), router.Kind(kind), m); err != nil {
					return err
				}
			}
			if err := sayReady(c.OutOrStdout()); err != nil {
				return err
			}
			<-c.Context().Done()
			return nil
		},
	}
	nameFlag(c, &name)
	routerFlag(c, &kind)
	return c
}

// sayReady tells `lab up` that the lab is up and lets go of the pipe: from here on
// nobody listens.
func sayReady(out io.Writer) error {
	if _, err := fmt.Fprintln(out, keepReady); err != nil {
		return fmt.Errorf("say that the lab is up: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("let go of the output: %w", err)
	}
	defer func() { _ = null.Close() }()
	for _, fd := range []int{1, 2} {
		if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
			return fmt.Errorf("let go of the output: %w", err)
		}
	}
	return nil
}
