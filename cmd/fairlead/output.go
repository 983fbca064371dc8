package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// addOutput adds -o text|json|yaml.
func addOutput(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "how to print: text, json or yaml")
	complete(c, "output", "text", "json", "yaml")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch *output {
		case "text", "json", "yaml":
			return nil
		}
		return usageError{err: fmt.Errorf("-o %q: want text, json or yaml", *output)}
	}
}

// printAs prints a value as json or yaml.
func printAs(w io.Writer, output string, value any) error {
	var body []byte
	var err error
	if output == "yaml" {
		body, err = yaml.Marshal(value)
	} else {
		body, err = json.MarshalIndent(value, "", "  ")
		body = append(body, '\n')
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", output, err)
	}
	_, err = w.Write(body)
	return err
}
