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
		Short:   "Look at the agents' authority, and replace it while machines go on",
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
		Short: "Show the agents' authorities, and who keeps certificates of them",
		Long: `Show the authorities by which machines and planes know each other: since when and until
when they are good, and how many machines keep a certificate of each. While a rotation is
under way it names the machines that have not renewed theirs, and since when they are away.`,
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
		Short: "Make another authority, to take the place of the present one",
		Long: `Make another authority. It signs from now on what machines get, and is trusted beside
the present one, by which planes go on to be known. Machines that are connected renew their
certificate within minutes, those whose agent is older than rotations within five days;
others when they connect again. Nothing is lost meanwhile. A machine that is away for longer
than the seven days of its certificate has to join again, as at any other time.

Upgrade all planes before: one that is older than rotations refuses machines that have
renewed. 'fairlead authority status' says who has not renewed yet, and 'fairlead authority
retire' ends the rotation.`,
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
			_, err = fmt.Fprintf(c.OutOrStdout(), "authority %s signs what machines get from now on; 'fairlead authority status' says who has renewed\n", pin)
			return err
		},
	}
}

func newAuthorityRetire(kubeconfig *string) *cobra.Command {
	var without []string
	c := &cobra.Command{
		Use:   "retire [--without MACHINE,...]",
		Short: "End a rotation: the old authority is no longer trusted",
		Long: `End the rotation that 'fairlead authority rotate' began: planes are known by the next
authority, and trust it alone. Machines renew once more, and then trust it alone, too.

It refuses while a Machine keeps a certificate of the authority of before, and names it. One
that is away holds it up for seven days after the rotation began: then its certificate is not
good any more. One that is gone for good can be deleted with kubectl, or be named with
--without: if it comes back, it has to join again. Tokens that nobody has used carry the pin
of the authority of before, and are revoked.`,
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
	c.Flags().StringSliceVar(&without, "without", nil, "machines that may be left behind: they have to join again")
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
