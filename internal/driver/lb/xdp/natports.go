package xdp

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// portRange is from its first port to its last; {} has none.
type portRange [2]uint16

func (r portRange) size() int {
	if r[0] == 0 {
		return 0
	}
	return int(r[1]) - int(r[0]) + 1
}

func (r portRange) String() string { return fmt.Sprintf("%d to %d", r[0], r[1]) }

const (
	firstPort, lastPort = 1024, 65535
	// fewPorts are too few for NAT: less than a Linux with its own settings leaves above
	// what it gives to sockets.
	fewPorts = 65535 - 61000
)

// anyway are the ports that NAT uses where sockets get nearly all.
var anyway = [2]portRange{{61000, lastPort}}

// natPorts are the two largest ranges of ports above 1023 that the kernel gives to no socket
// by itself: neither local nor reserved.
func natPorts(local portRange, reserved []portRange) (ports [2]portRange) {
	taken := slices.DeleteFunc(append(slices.Clone(reserved), local), func(r portRange) bool { return r.size() == 0 })
	slices.SortFunc(taken, func(a, b portRange) int { return int(a[0]) - int(b[0]) })
	taken = append(taken, portRange{lastPort, lastPort})
	var free []portRange
	next := firstPort
	for i, r := range taken {
		end := int(r[0]) - 1
		if i == len(taken)-1 {
			end = lastPort // the last one only marks where ports end
		}
		if end >= next {
			free = append(free, portRange{uint16(next), uint16(end)})
		}
		next = max(next, int(r[1])+1)
	}
	slices.SortStableFunc(free, func(a, b portRange) int { return b.size() - a.size() })
	copy(ports[:], free)
	if ports[0].size()+ports[1].size() < fewPorts {
		return anyway
	}
	return ports
}

// readPorts are the ports that sockets get by themselves, and those that they do not get
// because somebody wants them.
func readPorts(sysctls string) (local portRange, reserved []portRange, err error) {
	text, err := os.ReadFile(filepath.Join(sysctls, "net/ipv4/ip_local_port_range"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &local[0], &local[1])
	}
	if err != nil {
		return portRange{}, nil, fmt.Errorf("read net.ipv4.ip_local_port_range: %w", err)
	}
	text, err = os.ReadFile(filepath.Join(sysctls, "net/ipv4/ip_local_reserved_ports"))
	if err != nil {
		return local, nil, fmt.Errorf("read net.ipv4.ip_local_reserved_ports: %w", err)
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA == nil && errB == nil && a > 0 && b >= a {
			reserved = append(reserved, portRange{uint16(a), uint16(b)})
		}
	}
	return local, reserved, nil
}

// choosePorts reads which ports NAT may use.
func (d *DataPlane) choosePorts() {
	local, reserved, err := readPorts(d.c.Sysctls)
	if err != nil {
		d.c.Log.Warn("cannot read the range of ephemeral ports; NAT uses only few ports", "ports", anyway[0], "error", err)
		d.ports = anyway
		return
	}
	d.ports = natPorts(local, reserved)
}

// portProblem says which ports are both NAT's and sockets'; "" for none.
func (d *DataPlane) portProblem() string {
	if time.Since(d.portsAt) > resync {
		d.portsAt = time.Now()
		var err error
		if d.localPorts, _, err = readPorts(d.c.Sysctls); err != nil {
			d.c.Log.Debug("cannot read the range of ports that sockets get", "error", err)
		}
	}
	for _, r := range d.ports {
		if l := d.localPorts; r.size() > 0 && l.size() > 0 && l[0] <= r[1] && l[1] >= r[0] {
			return fmt.Sprintf("ports %s, which NAT uses, are within net.ipv4.ip_local_port_range (%s): lower its end to %d and restart the agent; otherwise flows from the machine itself to backends may lose answers",
				r, l, anyway[0][0]-1)
		}
	}
	return ""
}
