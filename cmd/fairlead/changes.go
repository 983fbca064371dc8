package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
)

func newChanges() *cobra.Command {
	var address, output, namespace, who string
	var since time.Duration
	var limit int
	var diff bool
	c := &cobra.Command{
		Use:        "changes [KIND[/NAMESPACE]/NAME]",
		SuggestFor: []string{"audit", "blame"},
		Short:      "Show who changed which object, when, and when each machine had it",
		GroupID:    groupPeople,
		Args:       cobra.MaximumNArgs(1),
		Long: `Show the last changes of objects in the API, newest first: the revision that machines were
sent, the time, the user of the API, the object, its first changed field, and how many
machines run it. Long names are cut; -o wide has them whole, and -o json also every changed
field and the time of each machine.

A revision is EPOCH/NUMBER, "-" where machines were sent nothing at once. The user is stamped by
the API and cannot be forged. Where the API has no such admission policy, it is "unknown". For
deletions, see the audit log.

The argument is an object, such as HTTPRoute/shop/www, or a kind.

A plane keeps the last 1,000 changes, at most 4 MiB, across restarts and changes of the leader.
Changes of EndpointSlices, status and discovered Services are not shown.`,
		Example: `  fairlead changes --since 1h
  fairlead changes HTTPRoute/shop/www --diff
  fairlead changes -n shop --who alice -o json`,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case since < 0:
				return usageError{err: fmt.Errorf("--since %s: want a duration from 0, such as 1h", since)}
			case limit < 0:
				return usageError{err: fmt.Errorf("--limit %d: want a number of changes; 0 is all", limit)}
			}
			q := console.ChangesQuestion{Namespace: namespace, Who: who, Limit: limit}
			if len(args) == 1 {
				q.Object = args[0]
				if parts := strings.Split(args[0], "/"); len(parts) == 3 {
					if namespace != "" && namespace != parts[1] {
						return usageError{err: fmt.Errorf("%q is not in namespace %q (-n)", args[0], namespace)}
					}
					q.Namespace = parts[1] // the right in that namespace suffices
				}
			}
			if since > 0 {
				q.Since = time.Now().Add(-since)
			}
			planeConsole, err := planeClient(c, address)
			if err != nil {
				return err
			}
			list, err := planeConsole.Changes(c.Context(), q)
			if err != nil {
				return advised(err)
			}
			if output != "text" && output != "wide" {
				return printAs(c.OutOrStdout(), output, list)
			}
			return console.WriteChanges(c.OutOrStdout(), list, console.ChangesOptions{Diff: diff, Wide: output == "wide"})
		},
		ValidArgsFunction: completeChanged(&address, &namespace),
	}
	consoleFlag(c, &address)
	addOutput(c, &output, "wide")
	addNamespace(c, &address, &namespace, "only objects in this namespace")
	c.Flags().StringVar(&who, "who", "", "only changes by this user of the API")
	c.Flags().DurationVar(&since, "since", 0, "only changes of this time until now, such as 1h; 0 is all that are kept")
	c.Flags().IntVar(&limit, "limit", 50, "print at most this many changes; 0 prints all")
	c.Flags().BoolVar(&diff, "diff", false, "print the changed fields below each change")
	completeAuthors(c, "who", &address, &namespace)
	return c
}
