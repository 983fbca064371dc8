package ipvs

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// connections is the kernel's list for the namespace of the thread that opens it.
const connections = "/proc/thread-self/net/ip_vs_conn"

// connection is an entry of the kernel's connection table.
type connection struct {
	frontend        model.FrontendKey
	client, backend netip.AddrPort
	state           string
	expires         time.Duration
}

// eachConnection calls f for every connection, others' too. Templates, which hold affinity,
// are left out.
func eachConnection(f func(connection)) error {
	file, err := os.Open(connections)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without procfs for it
	}
	if err != nil {
		return fmt.Errorf("list connections of IPVS: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if c, ok := parseConnection(lines.Text()); ok {
			f(c)
		}
	}
	return lines.Err()
}

// parseConnection reads "TCP 0A5B000A 8F2C C000020A 0050 0A5C0015 1F90 ESTABLISHED 893".
func parseConnection(line string) (c connection, ok bool) {
	w := strings.Fields(line)
	if len(w) < 9 {
		return c, false
	}
	c.frontend.Transport = model.Transport(w[0])
	if c.frontend.Transport != model.TCP && c.frontend.Transport != model.UDP {
		return c, false
	}
	client, ok1 := parseEnd(w[1], w[2])
	vip, ok2 := parseEnd(w[3], w[4])
	backend, ok3 := parseEnd(w[5], w[6])
	seconds, err := strconv.Atoi(w[8])
	if !ok1 || !ok2 || !ok3 || err != nil || client.Port() == 0 {
		return c, false
	}
	c.frontend.VIP, c.frontend.Port = vip.Addr(), vip.Port()
	c.client, c.backend, c.state, c.expires = client, backend, w[7], time.Duration(seconds)*time.Second
	return c, true
}

func parseEnd(address, port string) (netip.AddrPort, bool) {
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	var a netip.Addr
	if strings.Contains(address, ":") {
		a, err = netip.ParseAddr(strings.Trim(address, "[]"))
	} else {
		var b []byte
		if b, err = hex.DecodeString(address); err == nil {
			a, _ = netip.AddrFromSlice(b)
		}
	}
	return netip.AddrPortFrom(a, uint16(p)), err == nil && a.IsValid()
}

const defaultLimit = 1000

// Flows returns the entries of IPVS's connection table. Idle is the elapsed part of the
// entry's timeout.
func (p *Plane) Flows(q model.FlowQuery) (flows []model.Flow, truncated bool, err error) {
	p.work.Lock()
	defer p.work.Unlock()
	p.mu.Lock()
	services := p.services
	p.mu.Unlock()
	if len(services) == 0 {
		return nil, false, nil
	}
	ours := map[model.FrontendKey]bool{}
	for _, s := range services {
		for _, k := range s.frontends {
			ours[k] = true
		}
	}
	timeouts, err := p.kernel.handle.GetConfig()
	if err != nil {
		return nil, false, fmt.Errorf("read the timeouts of IPVS: %w", err)
	}
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	err = eachConnection(func(c connection) {
		switch {
		case !ours[c.frontend], q.Frontend.VIP.IsValid() && q.Frontend != c.frontend:
		case q.Client.IsValid() && !q.Client.Contains(c.client.Addr()), q.Backend.IsValid() && q.Backend != c.backend.Addr():
		case len(flows) == q.Limit:
			truncated = true
		default:
			state, timeout := "closing", timeouts.TimeoutTCPFin
			switch c.state {
			case "ESTABLISHED":
				state, timeout = "established", timeouts.TimeoutTCP
			case "SYN_RECV", "SYN_SENT", "SYNACK", "NONE":
				state, timeout = "new", time.Minute
			case "UDP":
				state, timeout = "established", timeouts.TimeoutUDP
			}
			flows = append(flows, model.Flow{Frontend: c.frontend, Client: c.client, Backend: c.backend, State: state, Idle: max(timeout-c.expires, 0)})
		}
	})
	return flows, truncated, err
}
