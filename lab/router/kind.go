package router

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"fairlead.dev/lab/program"
)

// Kind is whose router it is.
type Kind string

// The kinds.
const (
	BIRD Kind = "bird"
	FRR  Kind = "frr"
)

// Kinds are all kinds.
func Kinds() []Kind { return []Kind{BIRD, FRR} }

// process is one of a daemon's.
type process struct {
	name  string   // of the process and of its configuration file, with ".conf"
	argv  []string // run in the daemon's directory
	ready []string // succeeds once it is ready
	// leftovers are sockets and the like that a killed one leaves in the directory.
	leftovers []string
}

// daemon is what the kinds differ in. Its commands run in the daemon's directory
// and name files relative to it: that directory's path may be longer than a
// socket's may be, and those above it closed to the user that FRR runs as.
type daemon interface {
	// processes are those for the settings in the order of their start; the
	// last one speaks BGP.
	processes(settings) []process
	// check is the command that validates a program's configuration file.
	check(name string) []string
	// refusal is what a check that succeeded says is wrong.
	refusal(output []byte) error
	// queries are the commands whose output sessions reads.
	queries() [][]string
	sessions(outputs [][]byte) ([]Session, error)
	// user that owns the directory; empty means root.
	user() string
}

// locate returns the kind's daemon with the paths of its programs.
func (k Kind) locate() (daemon, error) {
	switch k {
	case BIRD:
		found, err := program.FindAll(program.BIRD, program.BIRDClient)
		if err != nil {
			return nil, err
		}
		return bird{daemon: found[0].Path, client: found[1].Path}, nil
	case FRR:
		found, err := program.FindAll(program.Zebra, program.BFDd, program.BGPd, program.Vtysh)
		if err != nil {
			return nil, err
		}
		return frr{zebra: found[0].Path, bfdd: found[1].Path, bgpd: found[2].Path, vtysh: found[3].Path}, nil
	}
	return nil, fmt.Errorf("%w: there is no router %q (there are %v)", ErrInvalid, k, Kinds())
}

// Find returns nil if the kind is installed, else an error that says what to do.
func (k Kind) Find() error {
	_, err := k.locate()
	return err
}

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").
	Funcs(template.FuncMap{"families": func() []Family { return []Family{IPv4, IPv6} }}).
	ParseFS(templateFiles, "templates/*.conf"))

// write writes a process's configuration file below dir.
func write(dir string, p process, s settings) error {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, p.name+".conf", s); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", p.name, err)
	}
	// It may hold passwords.
	if err := os.WriteFile(filepath.Join(dir, p.name+".conf"), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", p.name, err)
	}
	return nil
}
