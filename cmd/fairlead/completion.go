package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	v1 "fairlead.dev/internal/console/v1"
)

// completionPatience is how long a shell waits for names.
const completionPatience = 2 * time.Second

// completeOne completes the only argument of a command by what a plane knows; where none
// answers there are no completions.
func completeOne(address *string, names func(v1.Status) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionPatience)
		defer cancel()
		status, err := askStatus(ctx, c, *address)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(status), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeBy is completeOne for a flag.
func completeBy(c *cobra.Command, flag string, address *string, names func(v1.Status) []string) {
	complete := completeOne(address, names)
	completeFlag(c, flag, func(c *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		return complete(c, nil, text)
	})
}

// completeFlag has a flag completed by f.
func completeFlag(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag does not exist: a bug of this package
	}
}

// completeNothing keeps shells from offering files as values of flags that name none.
func completeNothing(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		complete(c, flag)
	}
}

// offerNoFiles keeps shells from offering files to commands without arguments and to flags with numbers: c's, and those of all
// commands below it.
func offerNoFiles(c *cobra.Command) {
	if c.Args == nil && !c.HasSubCommands() && c.ValidArgs == nil && c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		kind := f.Value.Type()
		number := kind == "duration" || strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint") || strings.HasPrefix(kind, "float")
		if _, has := c.GetFlagCompletionFunc(f.Name); number && !has {
			completeNothing(c, f.Name)
		}
	})
	for _, sub := range c.Commands() {
		offerNoFiles(sub)
	}
}

func machineNames(s v1.Status) (names []string) {
	for _, m := range s.Machines {
		names = append(names, m.Name)
	}
	return names
}

func frontendKeys(s v1.Status) (names []string) {
	for _, f := range s.Frontends {
		names = append(names, f.String())
	}
	return names
}

// frontendNames are frontends and their owners, each once.
func frontendNames(s v1.Status) []string {
	names, seen := frontendKeys(s), map[v1.Object]bool{}
	for _, f := range s.Frontends {
		if o := f.Owner; o.Name != "" && !seen[o] {
			seen[o] = true
			names = append(names, o.Namespace+"/"+o.Name)
		}
	}
	return names
}
