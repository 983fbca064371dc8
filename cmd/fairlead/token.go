package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/plane"
	apisource "fairlead.dev/internal/source/api"
)

// Roles of a machine, of its token as of its agent.
const (
	roleEdge    = plane.RoleEdge
	roleBackend = plane.RoleBackend
)

func newToken() *cobra.Command {
	var kubeconfig string
	c := &cobra.Command{
		Use:     "token",
		Short:   "Create, list and revoke the tokens with which machines join",
		GroupID: groupData,
	}
	c.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "", kubeconfigHelp)
	c.AddCommand(newTokenCreate(&kubeconfig), newTokenList(&kubeconfig), newTokenRevoke(&kubeconfig))
	return c
}

func newTokenCreate(kubeconfig *string) *cobra.Command {
	var machine, role string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "create --machine NAME",
		Short: "Create a one-time token for a machine to join",
		Long: `Create a one-time token with which the machine NAME can join, and print it. It cannot be
shown again: only its hash is stored. The token contains a pin of the certificate authority,
so the agent can authenticate the plane. A machine that joins with a token of role backend
receives no listener, route or key. If the Machine already exists, its spec.role applies.`,
		Example: `  fairlead token create --machine edge-1 > edge-1.token
  fairlead agent --plane 192.0.2.10:7443 --name edge-1 --token-file edge-1.token
  fairlead token create --machine node-7 --role backend > node-7.token`,
		RunE: func(c *cobra.Command, _ []string) error {
			if ttl < time.Second || ttl > plane.MaxTokenTTL {
				return usageError{err: fmt.Errorf("--ttl %s: want 1s to %s", ttl, plane.MaxTokenTTL)}
			}
			api, err := apiClient(*kubeconfig)
			if err != nil {
				return err
			}
			token, err := plane.CreateToken(c.Context(), api, plane.TokenRequest{Machine: machine, Role: role, TTL: ttl, Now: time.Now()})
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "machine %s can join with this token, once, until %s, as %s\n",
				machine, time.Now().Add(ttl).Format(time.RFC3339), role)
			keepPrivate(c.OutOrStdout())
			_, err = fmt.Fprintln(c.OutOrStdout(), token)
			return err
		},
	}
	c.Flags().StringVar(&machine, "machine", "", "name of the machine")
	roleVar(c.Flags(), &role, "role of the machine: edge, or backend (only hosts backends); the agent's --role must be the same")
	complete(c, "role", roleEdge, roleBackend)
	c.Flags().DurationVar(&ttl, "ttl", plane.DefaultTokenTTL, "validity of the token, 1s to 720h")
	required(c, "machine")
	return c
}

func newTokenList(kubeconfig *string) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the tokens, without their secrets",
		Example: `  fairlead token list
  fairlead token list -o json | jq -r '.[] | select(.spent == null and (.expired | not)) | .id'`,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := apiClient(*kubeconfig)
			if err != nil {
				return err
			}
			tokens, err := plane.ListTokens(c.Context(), api, time.Now())
			if err != nil {
				return err
			}
			if output != "text" {
				return printAs(c.OutOrStdout(), output, tokens)
			}
			if len(tokens) == 0 {
				_, err := fmt.Fprintln(c.OutOrStdout(), "no tokens")
				return err
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tMACHINE\tROLE\tSTATE\tEXPIRES")
			for _, info := range tokens {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", info.ID, info.Machine, cmp.Or(info.Role, roleEdge), tokenState(info), info.Expires.Format(time.RFC3339))
			}
			return t.Flush()
		},
	}
	addOutput(c, &output)
	return c
}

func tokenState(info plane.TokenInfo) string {
	switch {
	case !info.Spent.IsZero():
		return "used"
	case info.Expired:
		return "expired"
	default:
		return "usable"
	}
}

func newTokenRevoke(kubeconfig *string) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a token; a machine that joined with it stays",
		Long: `Revoke a token. A machine that joined with it stays; to remove that machine, delete its
Machine with kubectl. 'fairlead token list' shows the IDs.`,
		Example: "  fairlead token revoke veoy742ql4",
		Args:    cobra.ExactArgs(1),
		// The IDs are the plane's to know; files of this folder are certainly none.
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			api, err := apiClient(*kubeconfig)
			if err != nil {
				return err
			}
			if err := plane.RevokeToken(c.Context(), api, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "token %s is revoked\n", args[0])
			return err
		},
	}
}

// apiClient reaches the API that a kubeconfig names.
func apiClient(kubeconfig string) (client.Client, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return apisource.NewClient(config)
}

// keepPrivate takes a file to which a secret is written, as by "> token", from all others than its owner.
func keepPrivate(w io.Writer) {
	f, is := w.(*os.File)
	if !is {
		return
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		_ = f.Chmod(0o600) // at worst it is as the user's umask has it
	}
}
