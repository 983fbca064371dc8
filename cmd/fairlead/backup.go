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
		Long: `Save the data of the embedded API in one file: all resources, and the keys that kubeconfigs
and machines trust. The plane may run meanwhile. The file contains private keys: protect it.

With --kubeconfig or --etcd-servers the data is in another etcd. Back that up with its own
tools.`,
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
