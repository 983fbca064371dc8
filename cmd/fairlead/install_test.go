package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.dev/internal/install"
)

// settled are the flags of a command after parsing, as text.
func settled(t *testing.T, args ...string) map[string]string {
	t.Helper()
	c, rest, err := newRoot().Find(args)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	c.Flags().Visit(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	return values
}

// What is installed runs with the flags that were given: the unit's command line is read by
// the same program, and says the same.
func TestInstalledFlagsAreThoseGiven(t *testing.T) {
	token := filepath.Join(t.TempDir(), "edge-1.token")
	if err := os.WriteFile(token, []byte("a-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for part, given := range map[install.Part][]string{
		install.Agent: {
			"--plane", "192.0.2.10:7443", "--plane", "[2001:db8::1]:7443,plane.example.com:7443", "--name", "edge-1", "--role", "edge",
			"--envoy", "/opt/my envoy/envoy", "--drain-time", "45s", "--lb-interfaces", "eth0,eth1", "--log-level", "debug", "--envoy-user", "same",
		},
		install.Plane: {
			"--advertise-address", "192.0.2.10", "--machine-addresses", "Edge=10.0.0.0/24,Backend=10.1.0.0/16", "--refuse-endpoints", "10.0.0.0/8",
			"--refuse-endpoints", "2001:db8::/32", "--root-namespaces", "a,b", "--ocsp-stapling", "--install-crds=false", "--machine-ttl", "20s",
		},
	} {
		t.Run(string(part), func(t *testing.T) {
			root := t.TempDir()
			line := append([]string{"install", string(part), "--root", root}, given...)
			want := settled(t, append([]string{string(part)}, given...)...)
			if part == install.Agent {
				line = append(line, "--token-file", token)
				want["token-file"] = "/etc/fairlead/agent.token"
			}
			out, err := execute(line...)
			if err != nil {
				t.Fatal(err)
			}
			for _, says := range []string{"fairlead-" + string(part) + ".service: written", string(part) + ".env: written", "systemctl enable --now"} {
				if !strings.Contains(out, says) {
					t.Errorf("it says %q, want %q in it", out, says)
				}
			}
			got := settled(t, append([]string{string(part)}, settingWords(t, filepath.Join(root, "etc/fairlead", string(part)+".env"))...)...)
			for name, value := range want {
				if got[name] != value {
					t.Errorf("--%s is %q, want %q", name, got[name], value)
				}
			}
			if len(got) != len(want) {
				t.Errorf("the flags are %v, want %v", got, want)
			}
			again, err := execute(line...)
			if err != nil || strings.Contains(again, "written") || !strings.Contains(again, "unchanged") {
				t.Errorf("a second time: %q, %v", again, err)
			}
			if out, err := execute("uninstall", string(part), "--root", root, "-o", "json"); err != nil || strings.Count(out, `"removed"`) < 2 {
				t.Errorf("uninstall: %q, %v", out, err)
			}
			left, err := filepath.Glob(filepath.Join(root, "etc", "*", "*.*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left over: %v, %v", left, err)
			}
		})
	}
}

// settingWords reads the settings as systemd does: the file, then the unit's $VARIABLE.
func settingWords(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	value := regexp.MustCompile(`(?m)^FAIRLEAD_[A-Z]+_FLAGS='([^']*)'$`).FindSubmatch(text)
	if value == nil {
		t.Fatalf("%s is %q", path, text)
	}
	var all []string
	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(string(value[1]), -1) {
		all = append(all, m[1]+m[2])
	}
	return all
}

// The verbs that install a part take each of its flags, and the flags with paths are known.
func TestInstallTakesEveryFlag(t *testing.T) {
	for _, part := range []string{"agent", "plane"} {
		runs, err := command(part)
		if err != nil {
			t.Fatal(err)
		}
		installs, err := command("install", part)
		if err != nil {
			t.Fatal(err)
		}
		runs.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if installs.Flag(f.Name) == nil {
				t.Errorf("install %s lacks --%s", part, f.Name)
			}
			if path := regexp.MustCompile(`(dir|file)$`).MatchString(f.Name); path && f.Name != "token-file" && !slices.Contains(pathFlags, f.Name) {
				t.Errorf("--%s seems to be a path: pathFlags lacks it", f.Name)
			}
		})
	}
}

func command(path ...string) (*cobra.Command, error) {
	c, _, err := newRoot().Find(path)
	return c, err
}
