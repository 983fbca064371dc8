package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// cutting is a backend whose flows at a frontend are to end.
type cutting struct {
	key     model.FrontendKey
	backend netip.AddrPort
}

// cut are the backends that may no longer have flows.
func (c change) cut() []cutting {
	var all []cutting
	for _, f := range both {
		stay := c.to.backends(f)
		for pair := range c.from.backends(f) {
			if stay[pair] {
				continue
			}
			key, rest, _ := f.parseFrontend(pair)
			if b, ok := f.parseBackend(rest); ok {
				all = append(all, cutting{key, b})
			}
		}
	}
	return all
}

// disconnect makes conntrack forget the flows of these backends. Their next packet is that
// of a new flow: a backend that does not know it resets it.
func disconnect(cut map[cutting]bool) error {
	filters := map[netlink.InetFamily]cutFilter{unix.AF_INET: {}, unix.AF_INET6: {}}
	for c := range cut {
		filters[inetFamily(c.key.VIP)][c] = true
	}
	for family, filter := range filters {
		if len(filter) == 0 {
			continue
		}
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter); err != nil {
			return fmt.Errorf("end the flows of backends that are gone: %w", err)
		}
	}
	return nil
}

func inetFamily(a netip.Addr) netlink.InetFamily {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// cutFilter selects the conntrack entries of backends.
type cutFilter map[cutting]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f cutFilter) MatchConntrackFlow(e *netlink.ConntrackFlow) bool {
	key, _, backend, ok := ends(e)
	return ok && f[cutting{key, backend}]
}

// ends are the frontend, client and backend of an entry.
func ends(e *netlink.ConntrackFlow) (key model.FrontendKey, client, backend netip.AddrPort, ok bool) {
	switch e.Forward.Protocol {
	case lookup.Number(model.TCP):
		key.Transport = model.TCP
	case lookup.Number(model.UDP):
		key.Transport = model.UDP
	default:
		return key, client, backend, false
	}
	key.VIP, key.Port = addr(e.Forward.DstIP), e.Forward.DstPort
	client = netip.AddrPortFrom(addr(e.Forward.SrcIP), e.Forward.SrcPort)
	return key, client, netip.AddrPortFrom(addr(e.Reverse.SrcIP), e.Reverse.SrcPort), true
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// tracked calls each for every entry of conntrack that is of a frontend of ours.
func (p *Plane) tracked(specs map[model.FrontendKey]spec, each func(*netlink.ConntrackFlow, model.FrontendKey, netip.AddrPort, netip.AddrPort)) error {
	for _, f := range both {
		wanted := false
		for key := range specs {
			wanted = wanted || familyOf(key.VIP) == f
		}
		if !wanted {
			continue
		}
		family := netlink.InetFamily(unix.AF_INET)
		if f == ipv6 {
			family = unix.AF_INET6
		}
		entries, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("list conntrack: %w", err)
		}
		for _, e := range entries {
			if key, client, backend, ok := ends(e); ok {
				if _, ours := specs[key]; ours {
					each(e, key, client, backend)
				}
			}
		}
	}
	return nil
}

// States of TCP in conntrack (nf_conntrack_tcp.h) with the settings that say how long one
// lasts without a packet.
var tcpStates = map[uint8]struct{ state, timeout string }{
	1: {"new", "syn_sent"},
	2: {"new", "syn_recv"},
	3: {"established", "established"},
	4: {"closing", "fin_wait"},
	5: {"closing", "close_wait"},
	6: {"closing", "last_ack"},
	7: {"closing", "time_wait"},
	8: {"closing", "close"},
	9: {"new", "syn_sent"},
}

const defaultLimit = 1000

// Flows returns the entries of conntrack. Idle is the elapsed part of the entry's
// timeout.
func (p *Plane) Flows(q model.FlowQuery) (flows []model.Flow, truncated bool, err error) {
	p.mu.Lock()
	specs := p.shares
	p.mu.Unlock()
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	timeouts := map[string]time.Duration{}
	err = p.tracked(specs, func(e *netlink.ConntrackFlow, key model.FrontendKey, client, backend netip.AddrPort) {
		switch {
		case q.Frontend.VIP.IsValid() && q.Frontend != key, q.Client.IsValid() && !q.Client.Contains(client.Addr()), q.Backend.IsValid() && q.Backend != backend.Addr():
			return
		case len(flows) == q.Limit:
			truncated = true
			return
		}
		x := model.Flow{Frontend: key, Client: client, Backend: backend, State: "established"}
		name := "udp_timeout_stream"
		if tcp, ok := e.ProtoInfo.(*netlink.ProtoInfoTCP); ok {
			known := tcpStates[tcp.State]
			x.State, name = known.state, "tcp_timeout_"+known.timeout
		}
		if _, known := timeouts[name]; !known {
			timeouts[name] = p.timeout(name)
		}
		x.Idle = max(timeouts[name]-time.Duration(e.TimeOut)*time.Second, 0)
		flows = append(flows, x)
	})
	return flows, truncated, err
}

func (p *Plane) timeout(name string) time.Duration {
	text, err := os.ReadFile(filepath.Join(p.config.Sysctls, "net/netfilter/nf_conntrack_"+name))
	if err != nil {
		return 0
	}
	seconds, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return time.Duration(seconds) * time.Second
}
