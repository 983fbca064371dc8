package router

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/lab/program"
)

// TestDaemonsAcceptTheGuide gives the configurations that docs/guides/routers.md shows
// to the daemons.
func TestDaemonsAcceptTheGuide(t *testing.T) {
	root(t)
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "routers.md"))
	if err != nil {
		t.Fatal(err)
	}
	accepted := map[Kind]int{}
	for i, part := range strings.Split(string(raw), "```") {
		if i%2 == 0 || !strings.HasPrefix(part, "\n") {
			continue // prose, or a block in a language that has a name
		}
		config := part[1:]
		var kind Kind
		switch {
		case strings.Contains(config, "protocol bgp"):
			kind = BIRD
			if !strings.Contains(config, "router id") { // a part of one
				config = "router id 192.0.2.2;\nprotocol device { }\n" + config
			}
		case strings.Contains(config, "router bgp"):
			kind = FRR
		case strings.HasPrefix(config, "AS "):
			acceptsOpenBGPD(t, config)
			continue
		default:
			continue
		}
		d, err := kind.locate()
		if err != nil {
			t.Fatal(err)
		}
		r := &Router{kind: kind, daemon: d, dir: t.TempDir()}
		p := process{name: map[Kind]string{BIRD: "bird", FRR: "bgpd"}[kind]}
		if err := os.MkdirAll(filepath.Join(r.dir, temporary), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.dir, p.name+".conf"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := own(r.dir, d.user()); err != nil {
			t.Fatal(err)
		}
		if err := r.check(t.Context(), p); err != nil {
			t.Errorf("block %d: %v\n%s", i/2, err, config)
		}
		accepted[kind]++
	}
	if accepted[BIRD] < 2 || accepted[FRR] < 1 {
		t.Errorf("the guide has %v configurations", accepted)
	}
}

// acceptsOpenBGPD gives a configuration to OpenBGPD, which this package does not run.
func acceptsOpenBGPD(t *testing.T, config string) {
	t.Helper()
	found, err := program.OpenBGPD.Find()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bgpd.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), found.Path, "-n", "-f", file).CombinedOutput(); err != nil {
		t.Errorf("OpenBGPD: %v: %s\n%s", err, out, config)
	}
}
