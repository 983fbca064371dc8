package router

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// bird is BIRD 2 or newer: one process.
type bird struct{ daemon, client string }

const birdSocket = "bird.ctl"

func (b bird) processes(settings) []process {
	return []process{{
		name:      "bird",
		argv:      []string{b.daemon, "-f", "-c", "bird.conf", "-s", birdSocket},
		ready:     []string{b.client, "-r", "-s", birdSocket, "show", "status"},
		leftovers: []string{birdSocket},
	}}
}

func (b bird) check(name string) []string { return []string{b.daemon, "-p", "-c", name + ".conf"} }

func (b bird) refusal([]byte) error { return nil }

func (b bird) queries() [][]string {
	show := func(what ...string) []string {
		return append([]string{b.client, "-r", "-s", birdSocket, "show"}, what...)
	}
	return [][]string{show("protocols", "all"), show("bfd", "sessions")}
}

func (b bird) user() string { return "" }

// sessions reads what birdc prints: a line per protocol, below it its particulars,
// indented, as "key: value".
func (b bird) sessions(outputs [][]byte) ([]Session, error) {
	bfd := map[netip.Addr]string{}
	for line := range bytes.Lines(outputs[1]) {
		fields := strings.Fields(string(line)) // address, interface, state, ...
		if len(fields) < 3 {
			continue
		}
		if a, err := netip.ParseAddr(fields[0]); err == nil {
			bfd[a] = strings.ToLower(fields[2])
		}
	}
	var found []Session
	var now Session
	flush := func() {
		if now.Neighbor.IsValid() {
			now.BFD = bfd[now.Neighbor]
			found = append(found, now)
		}
		now = Session{}
	}
	for raw := range bytes.Lines(outputs[0]) {
		line := string(raw)
		if !strings.HasPrefix(line, " ") {
			flush()
			continue
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "BGP state":
			now.State, now.Up = value, value == "Established"
		case "Neighbor address":
			address, _, _ := strings.Cut(value, "%")
			now.Neighbor, err = netip.ParseAddr(address)
		case "Neighbor AS":
			var asn uint64
			asn, err = strconv.ParseUint(value, 10, 32)
			now.ASN = uint32(asn)
		case "Routes":
			var n int
			_, err = fmt.Sscanf(value, "%d imported", &n)
			now.Received += n
		}
		if err != nil {
			return nil, fmt.Errorf("read what birdc says, %q: %w", strings.TrimSpace(line), err)
		}
	}
	flush()
	return found, nil
}
