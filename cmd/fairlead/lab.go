package main

import (
	"github.com/spf13/cobra"

	"fairlead.dev/lab/cli"
)

func newLab() *cobra.Command {
	c := cli.Commands()
	c.GroupID = groupRun
	return c
}
