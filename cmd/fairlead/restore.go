package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/plane"
)

// Whose authority machines are let in by after a restore.
const (
	authorityBackup  = "backup"
	authorityPresent = "present"
	authorityNew     = "new"
)

// restoredAuthority is where a restore leaves authorities in the data directory, for the next start.
const restoredAuthority = "agent-authority.json"

// listedNames is how many names are written in one line.
const listedNames = 20

type restoreFlags struct {
	dataDir, file, authority string
	yes                      bool
}

func newRestore() *cobra.Command {
	f := &restoreFlags{}
	c := &cobra.Command{
		Use:     "restore --file FILE",
		Short:   "Restore the embedded API's data from a backup",
		GroupID: groupData,
		Long: `Replace the embedded API's data with a backup. Stop the plane first. The present data is moved
aside, not deleted. Machines in the backup continue. Machines that joined, or joined again,
after the backup must join once more; until then they serve their present configuration.

Machines that were deleted after the backup can connect again, and tokens that were used or
revoked after it become usable again. The command lists both, as far as the present data can
be read, and asks for confirmation. Without a terminal it changes nothing unless --yes is given.

The backup contains the agents' certificate authority, too. If the authority was rotated
after the backup, machines cannot connect to the restored plane. --authority present keeps
the present authorities, so machines continue. --authority new creates another one: all
certificates and tokens become invalid, and every machine has to join again.`,
		Example: `  fairlead restore --file /backup/fairlead-2026-01-02.tar
  fairlead restore --file /backup/fairlead-2026-01-02.tar --authority present --yes`,
		PreRunE: func(*cobra.Command, []string) error {
			switch f.authority {
			case authorityBackup, authorityPresent, authorityNew:
				return nil
			}
			return usageError{err: fmt.Errorf("--authority %q: want %s, %s or %s", f.authority, authorityBackup, authorityPresent, authorityNew)}
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := embedded.Restore(c.Context(), f.dataDir, f.file, f.approval(c)); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "restored %s from %s\n", f.dataDir, f.file)
			return err
		},
	}
	dataFlags(c, &f.dataDir, &f.file, "file to read")
	c.Flags().BoolVar(&f.yes, "yes", false, "restore without asking")
	c.Flags().StringVar(&f.authority, "authority", authorityBackup, "certificate authority to use: backup (the one in the backup), present (the one in the present data), or new")
	complete(c, "authority", authorityBackup, authorityPresent, authorityNew)
	return c
}

// approval says what the restore brings back, and asks.
func (f *restoreFlags) approval(c *cobra.Command) embedded.Approval {
	return func(ctx context.Context, r embedded.Replacement) (map[string][]byte, error) {
		if err := f.pending(); err != nil {
			return nil, err
		}
		review := restoreReview{backup: r.Backup, now: time.Now(), authority: f.authority}
		review.restored, review.unread = credentialsOf(ctx, r.Restored, review.now)
		review.present, review.unknown = credentialsOf(ctx, r.Present, review.now)
		files, err := review.files()
		if err != nil {
			return nil, err
		}
		review.write(c.ErrOrStderr())
		return files, confirm(ctx, c, f.yes, "Restore it?")
	}
}

// pending is an error where an earlier restore left an authority that no plane has taken in yet: it is
// what was decided, and the database does not have it. A new authority is another decision.
func (f *restoreFlags) pending() error {
	path := filepath.Join(f.dataDir, restoredAuthority)
	switch _, err := os.Stat(path); {
	case f.authority == authorityNew || errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("an earlier restore left the agents' authority in %s, and no plane has started since to adopt it. Do one of these: start the plane once, stop it, and restore again; or move %s away, the directory that the earlier restore put aside into its place, and restore again; or restore with --authority new", path, f.dataDir)
}

// credentialsOf are those that a plane with that database accepts.
func credentialsOf(ctx context.Context, d embedded.Database, now time.Time) (plane.Credentials, error) {
	stored, err := d.Read(ctx, plane.CredentialPrefixes()...)
	if err != nil {
		return plane.Credentials{}, err
	}
	return plane.ReadCredentials(stored, now)
}

// restoreReview is what whoever restores should know before.
type restoreReview struct {
	backup            embedded.Manifest
	now               time.Time
	authority         string
	restored, present plane.Credentials
	unread, unknown   error // why they could not be read
}

// files are those that the restored plane is to take in when it starts.
func (r restoreReview) files() (map[string][]byte, error) {
	var text []byte
	var err error
	switch r.authority {
	case authorityPresent:
		if r.unknown != nil {
			return nil, fmt.Errorf("the present authority cannot be kept: %w", r.unknown)
		}
		text, err = r.present.AuthorityFile(r.restored)
	case authorityNew:
		text, err = plane.NewAuthorityFile(r.now)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return map[string][]byte{restoredAuthority: text}, nil
}

func (r restoreReview) write(w io.Writer) {
	fmt.Fprintf(w, "The backup is of %s, %s ago, made on %s.\n", r.backup.Created.Format(time.RFC3339), r.now.Sub(r.backup.Created).Round(time.Minute), r.backup.Host)
	switch {
	case r.authority == authorityNew:
		fmt.Fprintln(w, "With a new authority no earlier certificate or token is accepted: every machine has to join again.")
	case r.unread != nil:
		fmt.Fprintf(w, "The machines and tokens of the backup cannot be read: %v\nMachines that were deleted and tokens that were revoked since are accepted again.\n", r.unread)
	case r.unknown != nil:
		r.writeAll(w)
	default:
		r.writeChange(w)
	}
}

// writeAll names everybody: who of them is new is not known.
func (r restoreReview) writeAll(w io.Writer) {
	fmt.Fprintf(w, "The data that it replaces cannot be read: %v\nMachines that were deleted and tokens that were revoked since are accepted again, if they are among these:\n", r.unknown)
	writeNames(w, "machines", r.restored.Machines())
	writeNames(w, "tokens", tokenNames(r.restored.Tokens()))
	fmt.Fprintln(w, afterRestore)
}

// afterRestore is what can be done about those who must not come back.
const afterRestore = "Delete the machines and tokens that must stay out as soon as the plane runs (kubectl delete machines.fairlead.dev NAME, fairlead token revoke ID), or answer no and restore with --authority new: no certificate and no token of the backup is accepted then, and every machine has to join again."

// writeChange names those who are let in and are not now, and the other way round.
func (r restoreReview) writeChange(w io.Writer) {
	restored := r.restored
	if r.authority == authorityPresent {
		restored = restored.Under(r.present)
	}
	c := restored.Replacing(r.present)
	back := len(c.Back)+len(c.Earlier)+len(c.Tokens) > 0
	if !back && len(c.Gone) == 0 && !c.Authority {
		fmt.Fprintln(w, "It accepts the same machines and tokens as the data that it replaces.")
		return
	}
	fmt.Fprintln(w, "Compared with the data that it replaces:")
	writeNames(w, "machines that were deleted since and are accepted again", c.Back)
	writeNames(w, "machines that joined again since: their earlier certificates are accepted again", c.Earlier)
	writeNames(w, "tokens that were used or revoked since and can be used again", tokenNames(c.Tokens))
	writeNames(w, "machines that joined since and must join once more", c.Gone)
	if c.Retired {
		fmt.Fprintln(w, "  an authority of agents that was retired since is trusted again")
	}
	if c.Authority {
		fmt.Fprintln(w, "  machines whose certificate was renewed since the authority was rotated must join once more, unless the present one stays: --authority present")
	}
	if back {
		fmt.Fprintln(w, afterRestore)
	}
}

// writeNames writes a line of names, if there are any; of many, the first.
func writeNames(w io.Writer, what string, names []string) {
	if len(names) == 0 {
		return
	}
	more := ""
	if len(names) > listedNames {
		more = fmt.Sprintf(" and %d more", len(names)-listedNames)
		names = names[:listedNames]
	}
	fmt.Fprintf(w, "  %s: %s%s\n", what, strings.Join(names, ", "), more)
}

func tokenNames(tokens []plane.TokenInfo) []string {
	var names []string
	for _, t := range tokens {
		names = append(names, fmt.Sprintf("%s (%s, until %s)", t.ID, t.Machine, t.Expires.UTC().Format(time.RFC3339)))
	}
	return names
}
