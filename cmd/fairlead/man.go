package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"fairlead.dev/internal/version"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIRECTORY",
		Short:   "Write the man pages, one for each command",
		GroupID: groupData,
		Long: `Write the man pages of this version into a directory, one for each command. Debian packages
contain them. The environment variable SOURCE_DATE_EPOCH (seconds) sets their date.`,
		Example: `  fairlead man /usr/local/share/man/man1
  man fairlead-agent`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			date := time.Now()
			if text, is := os.LookupEnv("SOURCE_DATE_EPOCH"); is {
				seconds, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
				}
				date = time.Unix(seconds, 0)
			}
			date = date.UTC()
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: "Fairlead " + version.String(), Manual: "Fairlead"}, args[0])
		},
	}
}
