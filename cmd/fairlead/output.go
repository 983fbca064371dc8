package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"fairlead.dev/internal/console"
)

// addOutput adds -o text|json|yaml, and what else the command can.
func addOutput(c *cobra.Command, output *string, more ...string) {
	forms := append([]string{"text", "json", "yaml"}, more...)
	text := alternatives(forms)
	c.Flags().StringVarP(output, "output", "o", "text", "output format: "+text)
	complete(c, "output", forms...)
	c.PreRunE = func(*cobra.Command, []string) error {
		if slices.Contains(forms, *output) {
			return nil
		}
		return usageError{err: fmt.Errorf("-o %q: want %s", *output, text)}
	}
}

// alternatives lists values, of which one is wanted.
func alternatives(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// printAs prints a value as json or yaml.
func printAs(w io.Writer, output string, value any) error {
	var body []byte
	var err error
	if output == "yaml" {
		if body, err = json.Marshal(value); err == nil {
			body, err = yaml.JSONToYAML(console.PlainJSON(body)) // YAML refuses some of these characters
		}
	} else {
		body, err = json.MarshalIndent(value, "", "  ")
		body = append(console.PlainJSON(body), '\n')
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", output, err)
	}
	_, err = w.Write(body)
	return err
}
