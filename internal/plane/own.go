package plane

import (
	"net/netip"

	"fairlead.dev/internal/snapshot"
)

// agentWays are some endpoints at which agents reach this plane, host:port: a few of each family.
func (p *Plane) agentWays() (list []string) {
	const most = 4
	counts := map[bool]int{}
	for _, e := range p.listening(p.agentsAt()) {
		if counts[e.Addr().Is4()] < most {
			counts[e.Addr().Is4()]++
			list = append(list, e.String())
		}
	}
	return list
}

// ownEndpoints are where this process takes calls by other machines, as far as it knows them: translation
// refuses them as backends. Other planes' are not among them: only the one that leads answers agents.
func (p *Plane) ownEndpoints() (own snapshot.Own) {
	agents, api := p.agentsAt(), p.config.API
	own.Agents, own.API = p.listening(agents), p.listening(api)
	if at, err := netip.ParseAddrPort(p.config.AdvertiseAddress); err == nil {
		own.Agents = append(own.Agents, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
		if api.IsValid() {
			own.API = append(own.API, netip.AddrPortFrom(at.Addr().Unmap(), api.Port()))
		}
	}
	return own
}

// agentsAt is where agents are listened to.
func (p *Plane) agentsAt() netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == nil {
		return netip.AddrPort{}
	}
	at, _ := netip.ParseAddrPort(p.address.String())
	return at
}

// listening is where one reaches who listens at an endpoint: at each address of this machine, if at all
// of them.
func (p *Plane) listening(at netip.AddrPort) (list []netip.AddrPort) {
	switch a := at.Addr().Unmap(); {
	case !at.IsValid():
	case !a.IsUnspecified():
		list = append(list, netip.AddrPortFrom(a, at.Port()))
	case p.config.Addresses != nil:
		addresses, _ := p.config.Addresses() // at worst those of a moment ago
		for _, a := range addresses {
			list = append(list, netip.AddrPortFrom(a, at.Port()))
		}
	}
	return list
}
