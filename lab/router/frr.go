package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// frr is FRRouting: zebra, which speaks with the kernel, bgpd, and bfdd where it is
// needed. They run as a user of their own: they refuse root.
type frr struct{ zebra, bfdd, bgpd, vtysh string }

// here is the daemon's directory as it sees it, whoever may enter those above it.
const here = "/proc/self/cwd/"

func (f frr) processes(s settings) []process {
	of := func(name, path string, more ...string) process {
		return process{
			name: name,
			argv: append([]string{
				path, "-u", f.user(), "-g", f.user(), "-f", here + name + ".conf", "-i", here + name + ".pid", "-z", here + "zserv.sock",
				"--vty_socket", here, "-P", "0", "--log", "stdout", "--log-level", "informational",
			}, more...),
			ready:     f.shell(name, "show version"),
			leftovers: []string{name + ".vty", name + ".pid"},
		}
	}
	var kernel []string
	if s.NoKernel {
		kernel = []string{"--no_kernel"}
	}
	zebra := of("zebra", f.zebra)
	zebra.leftovers = append(zebra.leftovers, "zserv.sock")
	programs := []process{zebra}
	if s.HasBFD() {
		bfdd := of("bfdd", f.bfdd, "--bfdctl", here+"bfdd.sock")
		bfdd.leftovers = append(bfdd.leftovers, "bfdd.sock")
		programs = append(programs, bfdd)
	}
	return append(programs, of("bgpd", f.bgpd, kernel...))
}

func (f frr) check(name string) []string {
	path := map[string]string{"zebra": f.zebra, "bfdd": f.bfdd, "bgpd": f.bgpd}[name]
	argv := []string{path, "-C", "-u", f.user(), "-g", f.user(), "-f", here + name + ".conf", "-i", here + name + ".pid", "--log", "stdout"}
	if name == "bfdd" {
		argv = append(argv, "--bfdctl", here+"bfdd.sock") // it makes it all the same
	}
	return argv
}

// refusal reads the log: FRR's programs say which lines they do not understand, go on
// without them, and succeed.
func (f frr) refusal(output []byte) error {
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "on config line") {
			return errors.New(strings.TrimSpace(line))
		}
	}
	return nil
}

// shell asks one of the daemons. vtysh reads no configuration of the host's.
func (f frr) shell(daemon, command string) []string {
	return []string{f.vtysh, "--vty_socket", ".", "--config_dir", ".", "-d", daemon, "-c", command}
}

func (f frr) queries() [][]string { return [][]string{f.shell("bgpd", "show bgp neighbors json")} }

func (f frr) user() string { return "frr" }

// frrNeighbor is what we read of a neighbour in vtysh's JSON.
type frrNeighbor struct {
	Address  string `json:"bgpNeighborAddr"` // of one on a link, "none" before it is found
	RemoteAS uint32 `json:"remoteAs"`
	State    string `json:"bgpState"`
	Families map[string]struct {
		Accepted int `json:"acceptedPrefixCounter"`
	} `json:"addressFamilyInfo"`
	BFD *struct {
		Status string `json:"status"`
	} `json:"peerBfdInfo"`
}

func (f frr) sessions(outputs [][]byte) ([]Session, error) {
	var neighbors map[string]json.RawMessage
	if err := json.Unmarshal(outputs[0], &neighbors); err != nil {
		return nil, fmt.Errorf("read what vtysh says, %.100q: %w", outputs[0], err)
	}
	var found []Session
	for name, raw := range neighbors {
		var n frrNeighbor
		address, err := netip.ParseAddr(name)
		if wrong := json.Unmarshal(raw, &n); wrong != nil && err == nil {
			return nil, fmt.Errorf("read what vtysh says of neighbour %s: %w", name, wrong)
		}
		if err != nil {
			if address, err = netip.ParseAddr(n.Address); err != nil {
				continue // something about the instance, or a link without a neighbour
			}
		}
		s := Session{Neighbor: address, ASN: n.RemoteAS, State: n.State, Up: n.State == "Established"}
		for _, family := range n.Families {
			s.Received += family.Accepted
		}
		if n.BFD != nil {
			s.BFD = strings.ToLower(n.BFD.Status)
		}
		found = append(found, s)
	}
	return found, nil
}
