package bundle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What journalctl says of itself is no log, and its words alone help nobody.
func TestAJournalWithoutAnything(t *testing.T) {
	for name, c := range map[string]struct {
		script string // what journalctl is; empty: there is none
		body   string
		err    string // how it begins; empty: none
	}{
		"no journalctl": {"", "", "this machine has no journalctl: the logs are where the processes write them"},
		"no such unit": {
			"echo 'Failed to add filter for units: No data available' >&2; exit 1", "",
			"the journal has nothing of units fairlead*: unless they run under systemd, the logs are where the processes write them (journalctl: Failed to add filter for units: No data available)",
		},
		"nothing":     {"exit 0", "", "the journal has nothing of units fairlead*: unless they run under systemd, the logs are where the processes write them"},
		"no journal":  {"echo 'No journal files were found.' >&2", "", "the journal has nothing of units fairlead*: unless they run under systemd, the logs are where the processes write them (journalctl: No journal files were found.)"},
		"with a hint": {"echo 'Hint: you see your own alone' >&2; echo a line", "a line\n", ""},
		"cut off":     {"echo a line; exit 3", "a line\n", "ask the journal: exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			if c.script != "" {
				if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			body, err := Journal("logs/journal.txt").Fetch(t.Context())
			if string(body) != c.body {
				t.Errorf("it has %q, want %q", body, c.body)
			}
			if said := ""; err != nil {
				if said = err.Error(); said != c.err {
					t.Errorf("it says %q, want %q", said, c.err)
				}
			} else if c.err != "" {
				t.Errorf("it says nothing, want %q", c.err)
			}
		})
	}
}

// The journalctl of this machine, asked for units that it does not have.
func TestTheJournalOfThisMachine(t *testing.T) {
	body, err := Journal("logs/journal.txt").Fetch(t.Context())
	if (err == nil) != (len(body) > 0) {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	if err != nil && !strings.Contains(err.Error(), "the logs are where the processes write them") {
		t.Error(err)
	}
}
