// Package program finds the programs of others that labs and benchmarks run, and asks
// each of them who it is and what it can: OpenBGPD's bgpd has the name of FRR's, and an
// nginx may lack its stream module.
//
// It refuses to install anything; it says what would. Invariant: a path that Find
// returns is that of a program that has said itself that it is the right one.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrMissing is wrapped when a program is not installed, or only others of its name are.
var ErrMissing = errors.New("program is missing")

// askTime bounds the wait for an answer, on a busy machine too.
const askTime = 20 * time.Second

// Program is a program of somebody else's.
type Program struct {
	Name string
	// Of says whose it is, and from which version on: "FRR 5 or newer".
	Of string
	// Dirs are where it may be besides PATH.
	Dirs []string
	// Ask are the arguments with which it says who it is. What it does with its exit status
	// does not matter.
	Ask []string
	// Says is found in what it says to either output.
	Says *regexp.Regexp
	// Can, if set, finds out what it lacks from what it says.
	Can func(says string) error
	// Part of tools/setup.sh that installs it, and Debian's packages.
	Part, Packages string
}

// Found is a program that is the right one.
type Found struct {
	Path string // absolute
	Says string // its whole answer
}

// Find looks on PATH, then in Dirs, and returns the first program of the name that is the
// right one. The error says which others were met, and what installs the right one.
func (p Program) Find() (Found, error) {
	var others []string
	var met []os.FileInfo
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), p.Dirs...) {
		path, err := filepath.Abs(filepath.Join(dir, p.Name))
		if err != nil {
			continue
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || unix.Access(path, unix.X_OK) != nil ||
			slices.ContainsFunc(met, func(m os.FileInfo) bool { return os.SameFile(m, info) }) {
			continue
		}
		met = append(met, info)
		found, err := p.At(path)
		if err == nil {
			return found, nil
		}
		others = append(others, err.Error())
	}
	if len(others) == 0 {
		return Found{}, fmt.Errorf("%w: there is no %s: %s", ErrMissing, p.what(), p.remedy())
	}
	return Found{}, fmt.Errorf("%w: %s: %s", ErrMissing, strings.Join(others, "; "), p.remedy())
}

// At is the program at a path, if it is the right one.
func (p Program) At(path string) (Found, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	c := exec.CommandContext(ctx, path, p.Ask...)
	c.Env = append(os.Environ(), "LC_ALL=C")
	c.WaitDelay = time.Second // it may have left a child that holds the pipe
	answer, err := c.CombinedOutput()
	f := Found{Path: path, Says: string(answer)}
	asked := "asked with " + strings.Join(p.Ask, " ")
	switch {
	case ctx.Err() != nil:
		return Found{}, fmt.Errorf("%s is not %s: %s it said nothing for %s", path, p.what(), asked, askTime)
	case !p.Says.MatchString(f.Says):
		said := firstLine(f.Says)
		if said == "" {
			said = fmt.Sprintf("nothing (%v)", err)
		}
		return Found{}, fmt.Errorf("%s is not %s: %s it says %s", path, p.what(), asked, said)
	case p.Can != nil:
		if err := p.Can(f.Says); err != nil {
			return Found{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	return f, nil
}

// what is "bgpd of FRR", and "nginx" of nginx.
func (p Program) what() string {
	if strings.HasPrefix(strings.ToLower(p.Of), p.Name) {
		return p.Of
	}
	return p.Name + " of " + p.Of
}

func (p Program) remedy() string {
	var by []string
	if p.Part != "" {
		by = append(by, "`tools/setup.sh "+p.Part+"`")
	}
	if p.Packages != "" {
		by = append(by, "`apt-get install "+p.Packages+"`")
	}
	return strings.Join(by, " or ") + " installs it"
}

// FindAll finds several programs, and says of each that is missing.
func FindAll(programs ...Program) ([]Found, error) {
	var errs []error
	all := make([]Found, len(programs))
	for i, p := range programs {
		var err error
		if all[i], err = p.Find(); err != nil {
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return fmt.Sprintf("%.100q", line)
		}
	}
	return ""
}
