package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/version"
)

func newBackup() *cobra.Command {
	var dataDir, file string
	c := &cobra.Command{
		Use:     "backup --file FILE",
		Short:   "Save the embedded API's data and keys in one file",
		GroupID: groupData,
		Long: `Save everything that the embedded API holds: the resources, and the keys that
kubeconfigs and machines trust. It works while the plane runs and while it does not.
The file holds private keys: keep it as you keep those.

With --kubeconfig or --etcd-servers the data is in somebody else's etcd; back that up
with its own means.`,
		Example: "  fairlead backup --file /backup/fairlead-$(date +%F).tar",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := embedded.Backup(c.Context(), dataDir, file, version.String()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "saved %s in %s\n", dataDir, file)
			return err
		},
	}
	dataFlags(c, &dataDir, &file, "file to write")
	return c
}

func dataFlags(c *cobra.Command, dataDir, file *string, what string) {
	c.Flags().StringVar(dataDir, "data-dir", defaultPlaneDir, "data directory of the plane")
	c.Flags().StringVarP(file, "file", "f", "", what)
	required(c, "file")
}
