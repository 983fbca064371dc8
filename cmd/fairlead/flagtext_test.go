package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What a flag cannot take is answered with what it wants, not with the words of Go's parsers.
func TestFlagsSayWhatTheyWant(t *testing.T) {
	for _, c := range []struct{ command, want string }{
		{"flows --limit abc", `--limit "abc": want a whole number`},
		{"plane --api-port 70x", `--api-port "70x": want a whole number from 0 to 65535`},
		{"plane --api-port 99999", `--api-port "99999": want a whole number from 0 to 65535`},
		{"plane --machine-ttl 5", `--machine-ttl "5": want a duration such as 500ms, 10s or 5m`},
		{"plane --install-crds=maybe", `--install-crds "maybe": want true or false`},
		{"plane --refuse-endpoints 10.0.0.0/8,here", `--refuse-endpoints "10.0.0.0/8,here": "here" is neither a CIDR like "10.0.0.0/8" nor an address`},
		{"up --refuse-endpoints 10.0.0.1/8", `--refuse-endpoints "10.0.0.1/8": 10.0.0.1/8 has bits set behind the prefix length: is 10.0.0.0/8 meant?`},
		{"translate --refuse-endpoints ::ffff:10.0.0.1", `--refuse-endpoints "::ffff:10.0.0.1": ::ffff:10.0.0.1 is an IPv4 address: write 10.0.0.1`},
		{"plane --machine-addresses 10.0.0.0/8", `--machine-addresses "10.0.0.0/8": "10.0.0.0/8" names no role: write Edge=10.0.0.0/8 or Backend=10.0.0.0/8`},
		{"up --machine-addresses Router=10.0.0.0/8", `--machine-addresses "Router=10.0.0.0/8": "Router=10.0.0.0/8": there is no role "Router": want Edge or Backend`},
		{"plane --machine-addresses Edge=", `--machine-addresses "Edge=": "Edge=" names no network: write Edge=10.0.0.0/24`},
		{"plane --machine-addresses Edge=here", `--machine-addresses "Edge=here": "here" is neither a CIDR like "10.0.0.0/8" nor an address`},
		{"plane --minimum-tls-version 1.1", `--minimum-tls-version "1.1": want 1.2 or 1.3`},
		{"plane --affinity-cookie a;b", `--affinity-cookie "a;b" is not a valid cookie name: want a token (RFC 9110), such as letters, digits and dashes`},
		{"token create --machine a --role edgy", `--role "edgy": want edge or backend; did you mean edge?`},
		{"agent --role Router", `--role "Router": want edge or backend`},
		{"plane --ingress-class=", `--ingress-class "": want the name of a class, such as contour; IngressRoutes without a class are served in any case`},
		{"explain http://a.test/ -f . --ingress-class=", `--ingress-class "": want the name of a class, such as contour; IngressRoutes without a class are served in any case`},
		{"flows --nope", "unknown flag: --nope"},
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(c.command))
		root.SetOut(io.Discard)
		if err := root.Execute(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.command, err, c.want)
		}
	}
}

// Help fits a terminal.
func TestHelpIsWrapped(t *testing.T) {
	for _, command := range []string{"plane", "agent", "up", "lab up"} {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(append(strings.Fields(command), "--help"))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		_, flags, found := strings.Cut(out.String(), "Flags:\n")
		if !found {
			t.Fatalf("%s shows no flags", command)
		}
		for line := range strings.Lines(flags) {
			if len(line) > helpWidth+10 { // a word is not broken
				t.Errorf("%s: %d columns: %s", command, len(line), line)
			}
		}
	}
}

// A role may be spelled as a Machine's spec.role is.
func TestRolesInAnyCase(t *testing.T) {
	for text, want := range map[string]string{"Edge": roleEdge, "edge": roleEdge, "Backend": roleBackend, "BACKEND": roleBackend} {
		var got string
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		roleVar(flags, &got, "")
		if got != roleEdge {
			t.Errorf("without it the role is %q", got)
		}
		if err := flags.Parse([]string{"--role", text}); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %s", text, got, err, want)
		}
	}
}
