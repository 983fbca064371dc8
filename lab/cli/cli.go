// Package cli is `fairlead lab`: labs for people, the demo and the benchmarks.
//
// It refuses to hold logic: it turns flags into calls of lab, demo and bench.
// Invariant: what a command leaves running is a lab that `lab down` removes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/lab"
)

// defaultName is the lab of those who do not name theirs.
const defaultName = "lab"

// Commands returns the command `lab` with all that is below it. The program that
// mounts it calls lab.MaybeJanitor first thing in main.
func Commands() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Networks of machines on this host, for trials, demos and benchmarks",
		Long: `A lab is a network of machines on this host. Each machine is a network namespace with IPv4
and IPv6 addresses. All machines are on one segment, apart from the host's own network. Labs
need root. A lab is removed completely when it ends, even when it is killed.`,
	}
	c.AddCommand(newUp(), newStatus(), newExec(), newDown(), newDemo(), newBench(), newKeep(), newBackend(), newAPI())
	return c
}

// nameFlag names the lab.
func nameFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "name", defaultName, "name of the lab")
	must(c.RegisterFlagCompletionFunc("name", completeNames))
}

// must is for errors that only a bug of this package can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func completeNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	labs, _ := lab.List(lab.DefaultDir)
	var names []string
	for _, l := range labs {
		names = append(names, l.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func options(c *cobra.Command) lab.Options {
	return lab.Options{Log: slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
}

func newDown() *cobra.Command {
	var name string
	var all bool
	var grace time.Duration
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove a lab, with everything that runs in it",
		Long: `Remove a lab with everything that runs in it, including shells of 'lab exec'. The command
also removes what is left of a lab that was killed.`,
		Example: `  fairlead lab down
  fairlead lab down --name mine
  fairlead lab down --all`,
		RunE: func(c *cobra.Command, _ []string) error {
			names := []string{name}
			if all {
				labs, err := lab.List(lab.DefaultDir)
				if err != nil {
					return err
				}
				names = names[:0]
				for _, l := range labs {
					names = append(names, l.Name)
				}
			}
			var errs []error
			for _, name := range names {
				err := lab.Destroy(c.Context(), name, grace, options(c))
				switch {
				case errors.Is(err, fs.ErrNotExist):
					_, _ = fmt.Fprintf(c.OutOrStdout(), "lab %s does not exist\n", name)
				case err != nil:
					errs = append(errs, err)
				default:
					_, _ = fmt.Fprintf(c.OutOrStdout(), "lab %s was removed\n", name)
				}
			}
			return errors.Join(errs...)
		},
	}
	nameFlag(c, &name)
	c.Flags().BoolVar(&all, "all", false, "remove all labs of this host")
	c.Flags().DurationVar(&grace, "grace", 20*time.Second, "time for the lab to stop gracefully before it is killed")
	c.MarkFlagsMutuallyExclusive("all", "name")
	return c
}

func newExec() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "exec [--name LAB] MACHINE [--] COMMAND [ARG...]",
		Short: "Run a command in a machine of a lab",
		// What follows the machine is the command's; a "[flags]" at the end would not be true.
		DisableFlagsInUseLine: true,
		Long: `Run a command in the network namespace of a machine, in place of this process:
terminal, signals and exit status are the command's own. Files are the host's.`,
		Example: `  fairlead lab exec client -- curl -s http://10.77.4.1:8080/
  fairlead lab exec edge-1 -- ss -tlnp
  fairlead lab exec plane bash`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			machine, argv := args[0], args[1:]
			if argv[0] == "--" {
				argv = argv[1:]
			}
			if len(argv) == 0 {
				return errors.New("name the command to run in the machine")
			}
			l, err := lab.Open(name, options(c))
			if err != nil {
				return err
			}
			defer l.Close()
			m, ok := l.Lookup(machine)
			if !ok {
				return fmt.Errorf("lab %s has no machine %q (`fairlead lab status --name %s` lists them)", name, machine, name)
			}
			env := append(os.Environ(), "FAIRLEAD_LAB="+name, "FAIRLEAD_MACHINE="+m.Name())
			return m.Exec(argv, env)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			s, err := lab.Read(lab.DefaultDir, name)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var machines []string
			for _, m := range s.Machines {
				machines = append(machines, m.Name)
			}
			return machines, cobra.ShellCompDirectiveNoFileComp
		},
	}
	nameFlag(c, &name)
	c.Flags().SetInterspersed(false) // what follows the machine is the command's
	return c
}

// finish runs what must happen though the command was interrupted.
func finish(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return f(ctx)
}
