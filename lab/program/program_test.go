package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fake puts a program on PATH that says something to one of its outputs, and ends with a
// status.
func fake(t *testing.T, dir, name, says string, status int) string {
	t.Helper()
	path := filepath.Join(dir, name)
	script := fmt.Sprintf("#!/bin/sh\ncat >&%d <<'EOF'\n%s\nEOF\nexit %d\n", 1+min(status, 1), says, status)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// onPath makes directories that stand alone on PATH with those of the shell: this machine may have routers of its own.
func onPath(t *testing.T, n int) []string {
	t.Helper()
	var dirs []string
	for range n {
		dirs = append(dirs, t.TempDir())
	}
	t.Setenv("PATH", strings.Join(append(slices.Clone(dirs), "/usr/bin", "/bin"), string(os.PathListSeparator)))
	return dirs
}

const (
	openBGPD = "bgpd: invalid option -- '-'\nusage: bgpd [-cdnvV] [-D macro=value] [-f file]"
	frrBGPD  = "bgpd version 10.2.1\nCopyright 1996-2005 Kunihiro Ishiguro, et al."
)

// TestFindsTheRightOneOfTwo has OpenBGPD's bgpd before FRR's.
func TestFindsTheRightOneOfTwo(t *testing.T) {
	dirs := onPath(t, 2)
	wrong := fake(t, dirs[0], "bgpd", openBGPD, 1)
	right := fake(t, dirs[1], "bgpd", frrBGPD, 0)
	p := BGPd
	p.Dirs = nil
	found, err := p.Find()
	if err != nil || found.Path != right {
		t.Fatalf("found %s (%v), want %s", found.Path, err, right)
	}
	if err := os.Remove(right); err != nil {
		t.Fatal(err)
	}
	_, err = p.Find()
	want := wrong + ` is not bgpd of FRR 5 or newer: asked with --version it says "bgpd: invalid option -- '-'": ` + "`tools/setup.sh frr` or `apt-get install frr` installs it"
	if !errors.Is(err, ErrMissing) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("with OpenBGPD alone it says %v, want %s", err, want)
	}
	p.Dirs = []string{dirs[1]}
	fake(t, dirs[1], "bgpd", frrBGPD, 0)
	if found, err := p.Find(); err != nil || found.Path != right {
		t.Errorf("away from PATH: found %s (%v), want %s", found.Path, err, right)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	onPath(t, 1)
	p := Program{Name: "no-such-router", Of: "nobody", Ask: []string{"-v"}, Says: regexp.MustCompile(""), Part: "bird", Packages: "bird2"}
	_, err := p.Find()
	want := "there is no no-such-router of nobody: `tools/setup.sh bird` or `apt-get install bird2` installs it"
	if !errors.Is(err, ErrMissing) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("it says %v, want %s", err, want)
	}
	if _, err := FindAll(BGPd, p); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("of several it says %v", err)
	}
}

// TestWhoIsWho asks each program with the answers of itself and of others of its name.
func TestWhoIsWho(t *testing.T) {
	modules := t.TempDir()
	here, there := t.TempDir(), filepath.Join(modules, "not")
	if err := os.WriteFile(filepath.Join(here, "ngx_stream_module.so"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const nginx = "nginx version: nginx/1.22.1\nTLS SNI support enabled\nconfigure arguments: --prefix=/x --modules-path="
	for _, c := range []struct {
		name   string
		p      Program
		says   string
		status int
		not    string // what is said against it
	}{
		{name: "BIRD 2", p: BIRD, says: "BIRD version 2.0.12", status: 0},
		{name: "BIRD 3", p: BIRD, says: "BIRD version 3.1.0"},
		{name: "BIRD 1", p: BIRD, says: "BIRD version 1.6.8", not: "is not BIRD 2 or newer"},
		{name: "a bird for bicycles", p: BIRD, says: "usage: bird [options]", status: 1, not: "usage: bird"},
		{name: "birdc", p: BIRDClient, says: "birdc: invalid option -- '-'\nUsage: birdc [-s <control-socket>] [-v] [-r] [-l]", status: 1},
		{name: "Quagga", p: Zebra, says: "zebra version 1.2.4\nCopyright 1996-2005 Kunihiro Ishiguro, et al.", not: "is not zebra of FRR"},
		{name: "FRR", p: Zebra, says: "zebra version 8.4.4\nCopyright"},
		{name: "FRR's shell", p: Vtysh, says: "Usage : vtysh [OPTION...]\n\nIntegrated shell for FRR (version 8.4.4)."},
		{name: "Quagga's shell", p: Vtysh, says: "Usage : vtysh [OPTION...]\n\nIntegrated shell for Quagga routing software suite.", not: "is not vtysh of FRR"},
		{name: "wrk", p: Wrk, says: "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\nUsage: wrk <options> <url>", status: 1},
		{name: "wrk2", p: Wrk, says: "wrk 4.0.0 [epoll] Copyright (C) 2012 Will Glozer\n    -R, --rate        <T>", status: 1, not: "this is wrk2"},
		{name: "HAProxy", p: HAProxy, says: "HAProxy version 2.6.12-1+deb12u4 2026/01/01 - https://haproxy.org/"},
		{name: "nginx with a module", p: Nginx, says: nginx + here + " --with-stream=dynamic"},
		{name: "nginx with it built in", p: Nginx, says: nginx + there + " --with-stream --with-stream_ssl_module"},
		{name: "nginx without the module", p: Nginx, says: nginx + there + " --with-stream=dynamic", not: "this nginx cannot forward TCP: its stream module is not installed"},
		{name: "nginx that never had one", p: Nginx, says: nginx + there + " --with-stream_ssl_module", not: "this nginx cannot forward TCP: it was built without its stream module"},
		{name: "runc", p: Runc, says: "runc version 1.1.5+ds1"},
		{name: "a library short", p: HAProxy, says: "haproxy: error while loading shared libraries: liblua5.3.so.0", status: 1, not: "error while loading shared libraries"},
		{name: "silence", p: Envoy, says: "", not: "asked with --version it says nothing"},
		{name: "Envoy", p: Envoy, says: "\n/x/envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL\n"},
		{name: "kubectl", p: Kubectl, says: "Client Version: v1.36.3\nKustomize Version: v5.8.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := fake(t, t.TempDir(), c.p.Name, c.says, c.status)
			found, err := c.p.At(path)
			switch {
			case c.not == "" && (err != nil || found.Path != path || !strings.Contains(found.Says, c.says)):
				t.Errorf("it is %+v (%v)", found, err)
			case c.not != "" && (err == nil || !strings.Contains(err.Error(), c.not) || !strings.Contains(err.Error(), path)):
				t.Errorf("it says %v, want %q", err, c.not)
			}
		})
	}
}
