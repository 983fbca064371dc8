package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/agent"
	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/near"
)

func newDrops() *cobra.Command {
	var runDir, file string
	var reasons []string
	c := &cobra.Command{
		Use:        "drops",
		SuggestFor: []string{"capture", "tcpdump"},
		Short:      "Show the packets that this machine's load balancer drops, and why",
		GroupID:    groupPeople,
		Long: `Show packets as the XDP data plane of this machine drops them: time, reason, interface, and
addresses. The command asks the agent through a socket in its run directory; run it as the
agent's user, usually root. Packets are recorded only while the command runs. At a high rate
some packets are left out.

With -w the beginning of each packet is written to a pcapng file for tcpdump and Wireshark,
with the reason as comment.`,
		Example: `  fairlead drops
  fairlead drops --reason no-backend --reason source-denied
  fairlead drops -w /tmp/drops.pcapng`,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, reason := range reasons {
				if known := bpf.Reasons(); !slices.Contains(known, reason) {
					return usageError{err: fmt.Errorf("--reason %q: there is no such reason%s (reasons: %s)", reason, near.DidYouMean(reason, known), strings.Join(known, ", "))}
				}
			}
			shown := 0
			show := func(d v1.Drop) error {
				_, err := fmt.Fprintln(c.OutOrStdout(), console.DropText(d))
				return err
			}
			if file != "" {
				f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
				if err != nil {
					return fmt.Errorf("write dropped packets: %w", err)
				}
				defer f.Close()
				capture, err := console.NewCapture(f)
				if err != nil {
					return err
				}
				show = capture.Write
			}
			begun := func() {
				of := "dropped packets"
				if len(reasons) > 0 {
					of = "packets that are dropped for " + strings.Join(reasons, " or ")
				}
				fmt.Fprintf(c.ErrOrStderr(), "waiting for %s; Ctrl-C ends\n", of)
			}
			err := console.FollowDrops(c.Context(), dropsSocket(runDir), reasons, begun, func(d v1.Drop) error {
				shown++
				return show(d)
			})
			switch {
			case err == nil && file != "":
				fmt.Fprintf(c.ErrOrStderr(), "%d packets written to %s\n", shown, file)
			case err == nil:
				fmt.Fprintf(c.ErrOrStderr(), "%d packets shown\n", shown)
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("%w (does an agent run on this machine, and are you its user? --run-dir names its run directory)", err)
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().StringVar(&runDir, "run-dir", defaultRunDir, "the agent's run directory")
	c.Flags().StringVarP(&file, "write", "w", "", "write packets to this pcapng file instead of printing them")
	c.Flags().StringArrayVar(&reasons, "reason", nil, "only packets dropped for this reason; may be repeated")
	complete(c, "reason", bpf.Reasons()...)
	return c
}

// dropsSocket is where an agent with that run directory shows dropped packets.
func dropsSocket(runDir string) string { return filepath.Join(runDir, "drops.sock") }

// capturer is a data plane that shows what it drops.
type capturer interface {
	Capture(ctx context.Context, reasons []string, begun func(), f func(bpf.Captured)) error
}

// serveDrops shows dropped packets to the agent's user until ctx is done. An agent that
// cannot goes on without.
func serveDrops(ctx context.Context, runDir string, b agent.Balancing, log *slog.Logger) error {
	var of capturer
	for _, p := range b.Planes {
		if c, captures := p.DataPlane.(capturer); captures {
			of = c
		}
	}
	if of == nil {
		return nil
	}
	l, err := listenDrops(ctx, dropsSocket(runDir))
	if err != nil {
		log.Warn("dropped packets cannot be shown", "error", err)
		return nil
	}
	return console.ServeDrops(ctx, l, func(ctx context.Context, reasons []string, begun func(), f func(v1.Drop)) error {
		return of.Capture(ctx, reasons, begun, func(c bpf.Captured) {
			f(v1.Drop{At: time.Now(), Reason: c.Reason, Interface: c.Interface, Length: c.Length, Data: c.Data})
		})
	})
}

// listenDrops makes the socket anew, unless another agent serves it.
func listenDrops(ctx context.Context, path string) (net.Listener, error) {
	if other, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		return nil, ended(fmt.Errorf("an agent already uses %s: stop it, or choose another --run-dir", path), other.Close())
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, ended(err, l.Close())
	}
	return l, nil
}
