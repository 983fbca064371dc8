package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/plane"
)

func newAuthority() *cobra.Command {
	var kubeconfig string
	c := &cobra.Command{
		Use:     "authority",
		Short:   "Show and rotate the certificate authority of agents and planes",
		GroupID: groupData,
	}
	c.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "", kubeconfigHelp)
	c.AddCommand(newAuthorityStatus(&kubeconfig), newAuthorityRotate(&kubeconfig), newAuthorityRetire(&kubeconfig))
	return c
}

func newAuthorityStatus(kubeconfig *string) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the certificate authorities and how many machines use each",
		Long: `Show the certificate authorities with which machines and planes authenticate each other:
their validity, and the number of machines with a certificate of each. During a rotation it
lists the machines that have not renewed their certificate, and since when each is
disconnected.`,
		Example: `  fairlead authority status
  fairlead authority status -o json | jq -r '.behind[]?.machine'`,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := apiClient(*kubeconfig)
			if err != nil {
				return err
			}
			s, err := plane.ReadAuthorityStatus(c.Context(), api, time.Now)
			if err != nil {
				return err
			}
			if output != "text" {
				return printAs(c.OutOrStdout(), output, s)
			}
			return writeAuthorities(c.OutOrStdout(), s)
		},
	}
	addOutput(c, &output)
	return c
}

func writeAuthorities(w io.Writer, s plane.AuthorityStatus) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "AUTHORITY\tSTATE\tSINCE\tUNTIL\tMACHINES")
	for _, a := range s.Authorities {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", a.Pin, authorityState(a), a.Since.Format(time.RFC3339), a.Until.Format(time.RFC3339), a.Machines)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case !s.Rotating():
	case len(s.Behind) == 0:
		fmt.Fprintln(w, "\nEvery machine has renewed its certificate: 'fairlead authority retire' ends the rotation.")
	default:
		fmt.Fprintf(w, "\nNot renewed yet (%d); if the old authority is retired now, these have to join again:\n", len(s.Behind))
		for _, m := range s.Behind {
			fmt.Fprintf(w, "  %s%s\n", m.Machine, awayText(m.Away))
		}
	}
	if len(s.Strangers) > 0 {
		fmt.Fprintf(w, "\nTheir certificate is of an authority that was retired; they have to join again (pods do by themselves, others with fairlead token create --machine NAME, and --role backend for one with backends only):\n  %s\n", strings.Join(s.Strangers, ", "))
	}
	return nil
}

func authorityState(a plane.AuthorityInfo) string {
	switch {
	case a.Shown && a.Signs:
		return "in use"
	case a.Shown:
		return "to be retired"
	default:
		return "next"
	}
}

func awayText(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return ", away since " + since.Format(time.RFC3339)
}

func newAuthorityRotate(kubeconfig *string) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Start a rotation: create the next authority",
		Long: `Create the next authority. From now on it signs the certificates of machines. Machines trust
both authorities; planes keep authenticating with the present one. Connected machines renew
their certificate within minutes, and other machines when they reconnect. An agent of a
version without rotation renews within five days. No traffic is interrupted. A machine that
is disconnected for longer than the seven days of its certificate has to join again, as at
any other time.

Upgrade all planes first: a plane of a version without rotation refuses machines that have
renewed. 'fairlead authority status' lists the machines that have not renewed yet, and
'fairlead authority retire' ends the rotation.`,
		Example: `  fairlead authority rotate
  fairlead authority status
  fairlead authority retire`,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := apiClient(*kubeconfig)
			if err != nil {
				return err
			}
			pin, err := plane.RotateAuthority(c.Context(), api, time.Now)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "authority %s signs the certificates of machines from now on; 'fairlead authority status' shows which machines have renewed\n", pin)
			return err
		},
	}
}

func newAuthorityRetire(kubeconfig *string) *cobra.Command {
	var without []string
	c := &cobra.Command{
		Use:   "retire [--without MACHINE,...]",
		Short: "End a rotation: trust only the next authority",
		Long: `End the rotation that 'fairlead authority rotate' started. Planes switch to certificates of
the next authority and trust only that one. Machines renew once more, and then trust only
that one, too.

The command is refused, and lists the machines, while any Machine has a certificate of the
old authority. A disconnected machine blocks it for at most seven days after the rotation
started; by then its certificate has expired. For a machine that will not return, delete the
Machine with kubectl or name it with --without; if it does return, it has to join again.
Unused tokens are revoked, because they carry the pin of the old authority.`,
		Example: `  fairlead authority retire
  fairlead authority retire --without edge-3,edge-7`,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := apiClient(*kubeconfig)
			if err != nil {
				return err
			}
			r, err := plane.RetireAuthority(c.Context(), api, time.Now, without)
			writeRetirement(c, r)
			var behind plane.BehindError
			if errors.As(err, &behind) {
				return fmt.Errorf("%w; wait until they have (fairlead authority status), delete those that are gone for good (kubectl delete machines.fairlead.dev NAME), or leave them behind: --without %s", err, strings.Join(slices.Concat(without, behind.Machines), ","))
			}
			return err
		},
	}
	c.Flags().StringSliceVar(&without, "without", nil, "machines that do not block the end of the rotation; they have to join again")
	complete(c, "without")
	return c
}

// writeRetirement says what was retired, if anything was, and who has to do something about it.
func writeRetirement(c *cobra.Command, r plane.Retirement) {
	if r.Pin == "" {
		return
	}
	fmt.Fprintf(c.OutOrStdout(), "authority %s is retired\n", r.Pin)
	for _, name := range r.Left {
		fmt.Fprintf(c.ErrOrStderr(), "warning: machine %s has to join again: an agent in a pod does so by itself, any other needs a token: fairlead token create --machine %s, and --role backend for one with backends only\n", name, name)
	}
	for _, t := range r.Tokens {
		role := ""
		if t.Role == roleBackend {
			role = " --role " + t.Role
		}
		fmt.Fprintf(c.ErrOrStderr(), "warning: token %s of machine %s carried its pin, and is revoked: make another one with fairlead token create --machine %s%s\n", t.ID, t.Machine, t.Machine, role)
	}
}
