package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// system is where Debian keeps what only root has on PATH.
var system = []string{"/usr/sbin", "/sbin", "/usr/bin"}

// The routers. FRR keeps its daemons away from PATH.
var (
	BIRD       = Program{Name: "bird", Of: "BIRD 2 or newer", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`^BIRD version ([2-9]|\d\d)`), Part: "bird", Packages: "bird2"}
	BIRDClient = Program{Name: "birdc", Of: "BIRD", Dirs: system, Ask: []string{"--help"}, Says: regexp.MustCompile(`Usage: \S*birdc .*control-socket`), Part: "bird", Packages: "bird2"}
	Zebra      = frr("zebra")
	BFDd       = frr("bfdd")
	BGPd       = frr("bgpd")
	Vtysh      = Program{Name: "vtysh", Of: "FRR", Dirs: system, Ask: []string{"--help"}, Says: regexp.MustCompile(`Integrated shell for FRR`), Part: "frr", Packages: "frr"}
)

// frr is a daemon of FRRouting. Its ancestor Quagga, which ends at version 1, and OpenBGPD
// have some of the names too.
func frr(name string) Program {
	return Program{
		Name: name, Of: "FRR 5 or newer", Dirs: []string{"/usr/lib/frr", "/usr/libexec/frr", "/usr/sbin"},
		Ask: []string{"--version"}, Says: regexp.MustCompile(`^` + name + ` version ([5-9]|\d\d)`), Part: "frr", Packages: "frr",
	}
}

// Speakers that ours meets in tests. OpenBGPD has its version's text since 6.
var (
	OpenBGPD = Program{Name: "bgpd", Of: "OpenBGPD 6 or newer", Dirs: system, Ask: []string{"-V"}, Says: regexp.MustCompile(`^OpenBGPD ([6-9]|\d\d)`), Part: "bgp", Packages: "openbgpd"}
	BGPCtl   = Program{Name: "bgpctl", Of: "OpenBGPD 6 or newer", Dirs: system, Ask: []string{"-V"}, Says: regexp.MustCompile(`^OpenBGPD ([6-9]|\d\d)`), Part: "bgp", Packages: "openbgpd"}
	ExaBGP   = Program{Name: "python3-exabgp", Of: "ExaBGP 4", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`(?m)^ExaBGP : 4\.`), Part: "bgp", Packages: "python3-exabgp"}
	GoBGPd   = Program{Name: "gobgpd", Of: "GoBGP 4", Ask: []string{"--version"}, Says: regexp.MustCompile(`^gobgpd version 4\.`), Part: "bgp"}
	GoBGP    = Program{Name: "gobgp", Of: "GoBGP 4", Ask: []string{"--version"}, Says: regexp.MustCompile(`^gobgp version 4\.`), Part: "bgp"}
)

// What reads our metrics in tests, and judges our rules. Debian's says the version on standard error.
var (
	Prometheus = Program{Name: "prometheus", Of: "Prometheus 2.40 or newer", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`^prometheus, version (2\.[4-9]\d|[3-9])`), Part: "prometheus", Packages: "prometheus"}
	Promtool   = Program{Name: "promtool", Of: "Prometheus 2.40 or newer", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`^promtool, version (2\.[4-9]\d|[3-9])`), Part: "prometheus", Packages: "prometheus"}
)

// What `bench e2e` compares with, and what it measures with.
var (
	Wrk     = Program{Name: "wrk", Of: "wrk 4", Dirs: system, Ask: []string{"-v"}, Says: regexp.MustCompile(`^wrk \S*4.*\[`), Can: withoutRate, Part: "bench", Packages: "wrk"}
	HAProxy = Program{Name: "haproxy", Of: "HAProxy", Dirs: system, Ask: []string{"-v"}, Says: regexp.MustCompile(`^HA-?Proxy version`), Part: "bench", Packages: "haproxy"}
	Nginx   = Program{Name: "nginx", Of: "nginx", Dirs: system, Ask: []string{"-V"}, Says: regexp.MustCompile(`^nginx version:`), Can: streams, Part: "bench", Packages: "nginx-light libnginx-mod-stream"}
	Taskset = Program{Name: "taskset", Of: "util-linux", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`util-linux`), Part: "bench", Packages: "util-linux"}
	Curl    = Program{Name: "curl", Of: "curl", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`^curl \d`), Part: "bench", Packages: "curl"}
)

// withoutRate refuses wrk2, which has the same name and must be told a rate.
func withoutRate(says string) error {
	if strings.Contains(says, "--rate") {
		return errors.New("this is wrk2, which needs a rate; the benchmark needs wrk, which sends as fast as it can")
	}
	return nil
}

func streams(says string) error {
	_, err := StreamModule(says)
	return err
}

var nginxModules = regexp.MustCompile(`--modules-path=(\S+)`)

// StreamModule is the module that an nginx, which says that much of itself, must load to
// forward TCP; empty where that is built in.
func StreamModule(says string) (string, error) {
	const lacks = "this nginx cannot forward TCP: "
	words := strings.Fields(says)
	for _, w := range words {
		switch w {
		case "--with-stream":
			return "", nil
		case "--with-stream=dynamic":
			dir := nginxModules.FindStringSubmatch(says)
			if dir == nil {
				return "", errors.New(lacks + "its path of modules is unknown")
			}
			module := filepath.Join(dir[1], "ngx_stream_module.so")
			if _, err := os.Stat(module); err != nil {
				return "", fmt.Errorf(lacks+"its stream module is not installed: %w", err)
			}
			return module, nil
		}
	}
	return "", errors.New(lacks + "it was built without its stream module")
}

// What nodes of test clusters run.
var (
	Containerd = Program{Name: "containerd", Of: "containerd", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`^containerd .*containerd`), Part: "cluster", Packages: "containerd"}
	Ctr        = Program{Name: "ctr", Of: "containerd", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`^ctr .*containerd`), Part: "cluster", Packages: "containerd"}
	Runc       = Program{Name: "runc", Of: "runc", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`^runc version`), Part: "cluster", Packages: "runc"}
	IPTables   = Program{Name: "iptables", Of: "iptables", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`^iptables v1`), Part: "cluster", Packages: "iptables"}
	Unshare    = Program{Name: "unshare", Of: "util-linux", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`util-linux`), Part: "cluster", Packages: "util-linux"}
	NSEnter    = Program{Name: "nsenter", Of: "util-linux", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`util-linux`), Part: "cluster", Packages: "util-linux"}
)

// What setup puts beside the binary, or somebody on PATH.
var (
	Envoy   = Program{Name: "envoy", Of: "Envoy", Dirs: system, Ask: []string{"--version"}, Says: regexp.MustCompile(`version: [0-9a-f]+/\d+\.`), Part: "envoy"}
	Kubectl = Program{Name: "kubectl", Of: "Kubernetes", Dirs: system, Ask: []string{"version", "--client"}, Says: regexp.MustCompile(`Client Version: v\d`), Part: "kubectl"}
)

// Known are all programs of this package.
func Known() []Program {
	return []Program{
		BIRD, BIRDClient, Zebra, BFDd, BGPd, Vtysh, Wrk, HAProxy, Nginx, Taskset, Curl,
		Containerd, Ctr, Runc, IPTables, Unshare, NSEnter, Envoy, Kubectl, BGPCtl, ExaBGP, GoBGPd, GoBGP, Prometheus, Promtool,
	}
}
