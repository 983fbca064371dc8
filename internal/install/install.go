// Package install writes and removes what has a part of Fairlead run on this machine: a unit
// of systemd, and a file with its flags. It neither starts nor stops anything; Systemctl
// does what the caller asks for.
//
// The unit is the same on all machines. Where a package of the distribution has brought it,
// none is written, so that upgrades of the package hold. Writing the same settings again
// changes nothing.
package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fairlead.dev/deploy/systemd"
)

// A Part is what can be installed.
type Part string

// The parts.
const (
	Agent Part = "agent"
	Plane Part = "plane"
)

// Unit is the name of the part's unit.
func (p Part) Unit() string { return "fairlead-" + string(p) + ".service" }

// variable holds the part's flags.
func (p Part) variable() string { return "FAIRLEAD_" + strings.ToUpper(string(p)) + "_FLAGS" }

// Where things are, below the root.
const (
	settingsDir = "etc/fairlead"
	ownUnits    = "etc/systemd/system"
)

// packaged are the directories in which packages have units.
var packaged = []string{"usr/lib/systemd/system", "lib/systemd/system"}

// mark begins every file that is written here: others are nobody's to replace or remove.
const mark = "# Written by `fairlead install"

// ErrForeign is for a file that is not of this package's making.
var ErrForeign = errors.New("it was not written by fairlead install")

// A Change is what became of a file.
type Change struct {
	Path string `json:"path"`
	// What is Written, Unchanged or Removed.
	What string `json:"change"`
}

// What becomes of files.
const (
	Written   = "written"
	Unchanged = "unchanged"
	Removed   = "removed"
)

// A Machine is where parts are installed.
type Machine struct {
	// Root is the root of its file system: / but for images.
	Root string
	// Binary is our program's absolute path there.
	Binary string
}

// TokenPath is where the agent's token is kept until it is removed.
func (m Machine) TokenPath() string { return "/" + settingsDir + "/agent.token" }

// HasToken says whether one is kept.
func (m Machine) HasToken() bool {
	_, err := os.Stat(m.at(m.TokenPath()))
	return err == nil
}

func (m Machine) at(path string) string { return filepath.Join(m.Root, path) }

// settings is the path of the part's flags below the root.
func settings(p Part) string { return filepath.Join(settingsDir, string(p)+".env") }

// Install has the part run with these flags when its unit is started. token is the agent's
// to join with; nil keeps the one that is there.
func (m Machine) Install(p Part, flags []string, token []byte) ([]Change, error) {
	line, err := line(p, flags)
	if err != nil {
		return nil, err
	}
	var unit []byte
	if !m.isPackaged(p) { // judged before anything is written
		if unit, err = m.unit(p); err != nil {
			return nil, err
		}
		if m.Root == "/" {
			if err := rootsAlone(m.Binary); err != nil {
				return nil, err
			}
		}
	}
	var changes []Change
	note := func(path string, mode fs.FileMode, text []byte) error {
		change, err := m.write(path, mode, text)
		if err == nil {
			changes = append(changes, change)
		}
		return err
	}
	// Private: flags may name what an attacker would like to know, and a token is a secret.
	if err := os.MkdirAll(filepath.Dir(m.at(settingsDir)), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(m.at(settingsDir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if token != nil {
		if err := note(m.TokenPath(), 0o600, token); err != nil {
			return changes, err
		}
	}
	if err := note(settings(p), 0o600, []byte(line)); err != nil {
		return changes, err
	}
	own := filepath.Join(ownUnits, p.Unit())
	if unit == nil {
		// One of ours from before the package would hide the package's.
		change, err := m.removeOurs(own)
		if change != nil {
			changes = append(changes, *change)
		}
		return changes, err
	}
	if have, err := os.ReadFile(m.at(own)); err == nil && !bytes.HasPrefix(have, []byte(mark)) {
		return changes, fmt.Errorf("replace %s: %w: move it away first", m.at(own), ErrForeign)
	}
	return changes, note(own, 0o644, unit)
}

// Uninstall removes the part's settings, its token, and the unit if it is ours. The part has
// ended before.
func (m Machine) Uninstall(p Part) ([]Change, error) {
	var changes []Change
	paths := []string{settings(p)}
	if p == Agent {
		paths = append(paths, m.TokenPath())
	}
	for _, path := range paths {
		switch err := os.Remove(m.at(path)); {
		case err == nil:
			changes = append(changes, Change{Path: m.at(path), What: Removed})
		case !errors.Is(err, fs.ErrNotExist):
			return changes, err
		}
	}
	change, err := m.removeOurs(filepath.Join(ownUnits, p.Unit()))
	if change != nil {
		changes = append(changes, *change)
	}
	_ = os.Remove(m.at(settingsDir)) // unless something else is there
	return changes, err
}

// Flags are those that the part is installed with, and whether it is.
func (m Machine) Flags(p Part) ([]string, bool) {
	text, err := os.ReadFile(m.at(settings(p)))
	if err != nil {
		return nil, false
	}
	for l := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(l), p.variable()+"="); ok {
			return cut(strings.Trim(value, "'")), true
		}
	}
	return nil, true
}

// HasUnit says whether systemd would find the part's unit.
func (m Machine) HasUnit(p Part) bool {
	_, err := os.Stat(m.at(filepath.Join(ownUnits, p.Unit())))
	return err == nil || m.isPackaged(p)
}

func (m Machine) isPackaged(p Part) bool {
	for _, dir := range packaged {
		if _, err := os.Stat(m.at(filepath.Join(dir, p.Unit()))); err == nil {
			return true
		}
	}
	return false
}

// unit is the part's, for this machine's binary.
func (m Machine) unit(p Part) ([]byte, error) {
	text, err := systemd.Units.ReadFile(p.Unit())
	if err != nil {
		return nil, err
	}
	if err := plain(m.Binary, " \t%$"); err != nil {
		return nil, fmt.Errorf("the binary's path %q: %w", m.Binary, err)
	}
	text = bytes.Replace(text, []byte("ExecStart="+systemd.Binary+" "), []byte("ExecStart="+m.Binary+" "), 1)
	return append([]byte(mark+" "+string(p)+"`; settings that are to stay belong into "+p.Unit()+".d.\n"), text...), nil
}

// line is the file with the part's flags, as EnvironmentFile= of systemd.exec(5) reads it:
// the whole in single quotes, in which nothing is special. The unit's $VARIABLE is cut at
// blanks, but for those in double quotes (systemd.service(5), "Command lines").
func line(p Part, flags []string) (string, error) {
	words := make([]string, len(flags))
	for i, f := range flags {
		if err := plain(f, ""); err != nil {
			return "", fmt.Errorf("%q: %w", f, err)
		}
		if words[i] = f; strings.ContainsAny(f, " \t") {
			words[i] = `"` + f + `"`
		}
	}
	return mark + " " + string(p) + "`, which writes it anew.\n" + p.variable() + "='" + strings.Join(words, " ") + "'\n", nil
}

// cut undoes what line does.
func cut(line string) (flags []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			flags = append(flags, part)
		} else {
			flags = append(flags, strings.Fields(part)...)
		}
	}
	return flags
}

// plain refuses what systemd would read as something else.
func plain(text, more string) error {
	if i := strings.IndexAny(text, "'\"\\\n\r\x00"+more); i >= 0 {
		return fmt.Errorf("%q cannot stand in the settings of a unit", text[i:i+1])
	}
	return nil
}

// write puts a file in place, whole, unless it is there.
func (m Machine) write(path string, mode fs.FileMode, text []byte) (Change, error) {
	change := Change{Path: m.at(path), What: Unchanged}
	if have, err := os.ReadFile(change.Path); err == nil && bytes.Equal(have, text) {
		return change, os.Chmod(change.Path, mode)
	}
	if err := os.MkdirAll(filepath.Dir(change.Path), 0o755); err != nil {
		return change, err
	}
	next, err := os.CreateTemp(filepath.Dir(change.Path), ".fairlead-")
	if err != nil {
		return change, err
	}
	defer func() { _ = os.Remove(next.Name()) }()
	_, err = next.Write(text)
	err = errors.Join(err, next.Chmod(mode), next.Sync(), next.Close())
	if err != nil {
		return change, fmt.Errorf("write %s: %w", change.Path, err)
	}
	change.What = Written
	return change, os.Rename(next.Name(), change.Path)
}

// removeOurs removes a file that this package wrote; nil if there is none, or it is another's.
func (m Machine) removeOurs(path string) (*Change, error) {
	path = m.at(path)
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.HasPrefix(have, []byte(mark)) {
		return nil, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return nil, err
	}
	return &Change{Path: path, What: Removed}, nil
}
