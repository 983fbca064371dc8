package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
)

// addNamespace adds -n to a command that asks a plane at address. It comes after addOutput.
func addNamespace(c *cobra.Command, address, namespace *string, usage string) {
	c.Flags().StringVarP(namespace, "namespace", "n", "", usage)
	completeNamespaces(c, "namespace", address)
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if *namespace != "" && len(validation.IsDNS1123Label(*namespace)) > 0 {
			return usageError{err: fmt.Errorf("-n %q: want the name of a namespace, such as shop", *namespace)}
		}
		return before(c, args)
	}
}
