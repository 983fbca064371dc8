package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.dev/internal/near"
	"fairlead.dev/internal/version"
)

// Groups of the help text.
const (
	groupRun    = "run"
	groupPeople = "people"
	groupData   = "data"
)

// Where things are unless a flag says otherwise.
const (
	defaultPlaneDir       = "/var/lib/fairlead/plane"
	defaultAgentDir       = "/var/lib/fairlead/agent"
	defaultRunDir         = "/run/fairlead"
	defaultPlaneConsole   = "127.0.0.1:7080"
	defaultAgentConsole   = "127.0.0.1:7081"
	defaultReadAddress    = ":7444"
	defaultAPIPort        = 6443
	defaultAgentPort      = 7443
	defaultKubeconfigName = "admin.kubeconfig"
)

// usageError marks a command line that cannot be understood. The command is filled in
// when its RunE returns one without.
type usageError struct {
	command string
	err     error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// logFlags choose how a process logs.
type logFlags struct{ level, format string }

func (f *logFlags) add(c *cobra.Command) {
	c.PersistentFlags().StringVar(&f.level, "log-level", "info", "minimum level of log messages: debug, info, warn or error")
	c.PersistentFlags().StringVar(&f.format, "log-format", "text", "format of log lines: text or json")
	complete(c, "log-level", "debug", "info", "warn", "error")
	complete(c, "log-format", "text", "json")
}

func (f *logFlags) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usageError{err: fmt.Errorf("--log-level %q: want debug, info, warn or error", f.level)}
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	default:
		return nil, usageError{err: fmt.Errorf("--log-format %q: want text or json", f.format)}
	}
}

func newRoot() *cobra.Command {
	// Libraries register flags of their own for every command line; ours has ours.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	logs := &logFlags{}
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "The load-balancing tier for people who run their own machines",
		Long: `Fairlead receives traffic at edge machines and balances it over backends in any number of
clusters: HTTP through Envoy, TCP and UDP in the kernel. It is configured with kubectl,
through Gateway API resources, IngressRoutes or Services, in its embedded API server or in
an existing cluster.

  fairlead up                     run everything on this machine
  fairlead token create ...       let another machine join
  fairlead status                 show machines, listeners, routes, and problems
  fairlead vips                   show VIPs and the machines that announce them`,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("fairlead {{.Version}}\n")
	// Commands of commands can run only to say that they cannot.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupPeople, Title: "Inspect:"},
		&cobra.Group{ID: groupData, Title: "Operate:"},
	)
	logs.add(root)
	root.AddCommand(
		newUp(logs), newPlane(logs), newAgent(logs), newInstall(), newUninstall(), newLab(),
		newStatus(), newTop(), newTap(), newRoutes(), newVIPs(), newBackends(), newFlows(), newDrops(), newBGP(), newUpstreams(), newExplain(), newDrain(), newUndrain(), newUpstream(), newRevisions(), newChanges(), newFreeze(), newUnfreeze(), newRollback(), newTranslate(), newVersion(),
		newToken(), newAuthority(), newBackup(), newRestore(), newSupportBundle(), newMan(), newDashboards(),
	)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		_, err := logs.logger()
		return usage(c, err)
	}
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{command: c.CommandPath(), err: flagValue(err)}
	})
	wrapHelp(root)
	offerNoFiles(root)
	markUsageErrors(root)
	return root
}

// markUsageErrors makes wrong arguments, missing flags and unknown commands exit like
// wrong flags do.
func markUsageErrors(c *cobra.Command) {
	check := c.Args
	switch {
	case c.HasSubCommands():
		check = unknownCommand
	case c.Name() == "help" && c.Parent() == c.Root():
		check = helpTopic
	case check == nil:
		check = noArguments
	}
	if !c.Runnable() {
		// Cobra asks only commands that can run for their arguments.
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err != nil && (strings.HasPrefix(err.Error(), "accepts ") || strings.HasPrefix(err.Error(), "requires ")) { // cobra says how many, not which
			err = fmt.Errorf("%s; want %s", err, strings.TrimSuffix(c.UseLine(), " [flags]")) //nolint:errorlint // its text alone is of use
		}
		if err == nil {
			err = c.ValidateRequiredFlags()
		}
		if err == nil {
			err = c.ValidateFlagGroups()
		}
		if err != nil {
			return usageError{command: c.CommandPath(), err: err}
		}
		return nil
	}
	if look := c.PreRunE; look != nil {
		// It looks at flags and does nothing yet.
		c.PreRunE = func(c *cobra.Command, args []string) error {
			err := look(c, args)
			var u usageError
			if err == nil || errors.As(err, &u) {
				return usage(c, err)
			}
			return usageError{command: c.CommandPath(), err: err}
		}
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error { return usage(c, run(c, args)) }
	}
	for _, sub := range c.Commands() {
		markUsageErrors(sub)
	}
}

// usage says of which command a usageError is.
func usage(c *cobra.Command, err error) error {
	var u usageError
	if errors.As(err, &u) && u.command == "" {
		return usageError{command: c.CommandPath(), err: err}
	}
	return err
}

func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q: %s takes no arguments", args[0], c.CommandPath())
}

func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	c.SuggestionsMinimumDistance = 2
	meant := c.SuggestionsFor(args[0])
	if nearest := near.Names(args[0], meant); len(nearest) > 0 {
		meant = nearest
	}
	if len(meant) > 0 {
		text += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return fmt.Errorf("%s", text)
}

// helpTopic refuses what is no command; cobra would show the help of the last one that is.
func helpTopic(help *cobra.Command, args []string) error {
	at := help.Root()
	for _, arg := range args {
		i := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == arg || c.HasAlias(arg) })
		if i < 0 {
			return unknownCommand(at, []string{arg})
		}
		at = at.Commands()[i]
	}
	return nil
}

// complete gives a flag a fixed list of completions.
func complete(c *cobra.Command, flag string, values ...string) {
	completeFlag(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func newVersion() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		GroupID: groupPeople,
		Example: `  fairlead version
  fairlead version -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if output == "text" {
				_, err := fmt.Fprintln(c.OutOrStdout(), "fairlead", version.String())
				return err
			}
			return printAs(c.OutOrStdout(), output, map[string]string{"version": version.String()})
		},
	}
	addOutput(c, &output)
	return c
}
