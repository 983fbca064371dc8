package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An empty answer to a file that holds nothing looks like success; the warning says why.
func TestTranslateSaysThatThereIsNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "routes.yaml")
	for text, warns := range map[string]bool{
		"# nothing\n": true,
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n": false,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := execute("translate", "-f", name)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out, "nothing to translate: no resource of ours in "+name); got != warns {
			t.Errorf("%q: warns %v, want %v:\n%s", text, got, warns, out)
		}
	}
}
