package main

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane"
)

// mostCompleted bounds the rows that names are taken from: of 20,000 routes, a shell needs those that begin as typed.
const mostCompleted = 1000

// askNames asks a plane for names that begin as typed, as long as a shell waits; where none answers there are none.
func askNames(c *cobra.Command, address, text string, ask func(context.Context, console.Client) []string) ([]string, cobra.ShellCompDirective) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	client, err := planeClient(c, address)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return begun(text, ask(ctx, client)), cobra.ShellCompDirectiveNoFileComp
}

// begun are the names that begin so, each once, in the order in which they came first.
func begun(text string, names []string) (once []string) {
	seen := map[string]bool{}
	for _, name := range names {
		if name != "" && strings.HasPrefix(name, text) && !seen[name] {
			seen[name] = true
			once = append(once, name)
		}
	}
	return once
}

// askRows asks for rows of a list; there are none without an answer.
func askRows[T any](ctx context.Context, client console.Client, path, namespace, parameter, value string) (rows []T) {
	q := url.Values{"limit": {strconv.Itoa(mostCompleted)}, parameter: {value}}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	body, err := client.Get(ctx, path+"?"+q.Encode())
	if err != nil || json.Unmarshal(body, &rows) != nil {
		return nil
	}
	return rows
}

// completeHosts completes the only argument of a command by hosts of routes, and by the owners of routes if owners says so.
func completeHosts(address, namespace *string, owners bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return askNames(c, *address, text, func(ctx context.Context, client console.Client) (names []string) {
			kind, rest, hasKind := strings.Cut(text, "/")
			hasKind = hasKind && strings.HasSuffix(kind, "Route")
			search := text
			if hasKind {
				search = kind + " " + rest // as an owner is searched for
			}
			for _, r := range askRows[v1.Route](ctx, client, v1.RoutesPath, *namespace, "search", search) {
				if owners {
					name := r.Owner.Namespace + "/" + r.Owner.Name
					if hasKind {
						name = r.Owner.Kind + "/" + name
					}
					names = append(names, name)
				}
				names = append(names, r.Host)
			}
			return names
		})
	}
}

// completeChanged completes the only argument of changes: a kind, then the objects of that kind that were changed.
func completeChanged(address, namespace *string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		kind, _, named := strings.Cut(text, "/")
		switch {
		case len(args) > 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case !named:
			return begun(text, plane.ChangedKinds()), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace // a name may follow
		}
		return askNames(c, *address, text, func(ctx context.Context, client console.Client) (names []string) {
			for _, change := range askRows[v1.Change](ctx, client, v1.ChangesPath, *namespace, "object", kind) {
				o := change.Object
				o.Kind = kind // as it is written
				names = append(names, model.Object(o).Key())
			}
			return names
		})
	}
}

// completeAuthors completes a flag by those who have changed objects.
func completeAuthors(c *cobra.Command, flag string, address, namespace *string) {
	completeFlag(c, flag, func(c *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		return askNames(c, *address, text, func(ctx context.Context, client console.Client) (names []string) {
			for _, change := range askRows[v1.Change](ctx, client, v1.ChangesPath, *namespace, "search", text) {
				names = append(names, change.Who)
			}
			return names
		})
	})
}

// completeNamespaces completes a flag by the namespaces of routes and frontends. Of whoever may not read all of them, those of
// the contexts of the kubeconfig are known.
func completeNamespaces(c *cobra.Command, flag string, address *string) {
	completeFlag(c, flag, func(c *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		names, how := askNames(c, *address, text, func(ctx context.Context, client console.Client) (names []string) {
			status, err := client.Status(ctx)
			if err != nil {
				return nil
			}
			for _, r := range status.Routes {
				names = append(names, r.Namespace)
			}
			for _, f := range status.Frontends {
				names = append(names, f.Owner.Namespace)
			}
			return names
		})
		if len(names) == 0 {
			names = begun(text, contextNamespaces(c))
		}
		slices.Sort(names)
		return names, how
	})
}

// contextNamespaces are those of the contexts of the kubeconfig.
func contextNamespaces(c *cobra.Command) (names []string) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if f := c.Flags().Lookup("kubeconfig"); f != nil {
		rules.ExplicitPath = f.Value.String()
	}
	config, err := rules.Load()
	if err != nil {
		return nil
	}
	for _, context := range config.Contexts {
		names = append(names, context.Namespace)
	}
	return names
}
