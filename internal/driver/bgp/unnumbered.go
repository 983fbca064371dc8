package bgp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/internal/driver/bgp/discovery"
	"fairlead.dev/internal/model"
)

// links are those on which peers are found: a discovery.Watcher.
type links interface {
	Watch(wanted map[string]discovery.Session)
	Routers(name string) ([]netip.Addr, error)
	Close()
}

// onLink is a peer on an interface.
type onLink struct{ peer, link string }

// discovered is a peer with the address that it has now, and the trouble in finding it.
type discovered struct {
	peer    model.Peer
	trouble trouble
}

// discovers reports whether a peer is to be found on a link.
func (s *Speaker) discovers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.wanted.Peers, func(c model.Peer) bool { return c.Interface != "" })
}

// find gives peers of interfaces the addresses of the routers there. The caller holds s.mu.
func (s *Speaker) find(peers []model.Peer) []discovered {
	up := s.remember(peers)
	over := map[string]discovery.Session{}
	var taken []netip.Addr
	for _, c := range peers {
		if c.Interface == "" {
			taken = append(taken, c.Address)
			continue
		}
		over[c.Interface] = discovery.Session{Router: s.lastOn[onLink{c.Name, c.Interface}], Up: up[c.Name]}
	}
	s.links.Watch(over)
	out := make([]discovered, len(peers))
	for i, c := range peers {
		if c.Interface == "" {
			out[i].peer = c
			continue
		}
		last := s.lastOn[onLink{c.Name, c.Interface}]
		heard, err := s.links.Routers(c.Interface)
		heard = slices.DeleteFunc(heard, func(a netip.Addr) bool { return slices.Contains(taken, a) })
		c.Address, out[i].trouble = choose(c, last, up[c.Name], heard, err)
		out[i].peer = c
	}
	return out
}

// remember writes down with which routers peers of interfaces have sessions, or had their last ones, for as long as
// the peers are wanted there, and returns which peers have one. The address of a peer changes only with the peer, so
// that it is the one of its sessions. The caller holds s.mu.
func (s *Speaker) remember(peers []model.Peer) (up map[string]bool) {
	last := map[onLink]netip.Addr{}
	up = map[string]bool{}
	for _, c := range peers {
		at := onLink{c.Name, c.Interface}
		if a, known := s.lastOn[at]; known {
			last[at] = a
		} else if a, known := s.earlier[at]; known {
			last[at] = a
			delete(s.earlier, at)
		}
		p := s.peers[c.Name]
		if c.Interface == "" || p == nil {
			continue
		}
		conf, _, _ := p.wanted()
		if conf.Interface != c.Interface || !conf.Address.IsValid() {
			continue
		}
		now := p.session()
		up[c.Name] = now.State == model.SessionEstablished
		if up[c.Name] || now.Flaps > 0 {
			last[at] = conf.Address
		}
	}
	if !maps.Equal(s.lastOn, last) {
		s.routers.keep(last)
	}
	s.lastOn = last
	return up
}

// recall has the routers of the sessions of the process before this one count as those of the last sessions.
func (s *Speaker) recall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.earlier = s.routers.load()
}

// choose says which of the routers that are heard on a link is the peer, zero being none, and the trouble with that.
// The last one with which there was a session stays while it is up, whatever else is heard, and after it for as long as
// the router is heard itself. Else there must be one only.
func choose(c model.Peer, last netip.Addr, up bool, heard []netip.Addr, err error) (netip.Addr, trouble) {
	c.Address = netip.Addr{}
	say := func(reason model.SessionReason, format string, args ...any) trouble {
		return trouble{reason, where(c) + fmt.Sprintf(format, args...)}
	}
	others := slices.DeleteFunc(slices.Clone(heard), func(a netip.Addr) bool { return a == last })
	there := len(others) < len(heard)
	switch {
	case last.IsValid() && (up || err == nil && there):
		if len(others) == 0 {
			return last, trouble{}
		}
		return last, say(model.SessionManyRouters, "the session is with %s, and other routers are heard on the link, too: %s; name each router that should be a peer by its address (%s)",
			last, addresses(others), others[0])
	case errors.Is(err, discovery.ErrNoInterface):
		return netip.Addr{}, say(model.SessionNoLocalAddress, "this machine has no interface %s: correct the peer's interface, or the machines that it selects", c.Interface)
	case errors.Is(err, discovery.ErrNoAddress):
		return netip.Addr{}, say(model.SessionNoLocalAddress, "the interface has no link-local IPv6 address: enable IPv6 on it (sysctl net.ipv6.conf.%s.disable_ipv6 and addr_gen_mode)", c.Interface)
	case errors.Is(err, discovery.ErrDown):
		return netip.Addr{}, say(model.SessionNoRouter, "the interface is down, or has no carrier: check the link")
	case err != nil:
		return netip.Addr{}, say(model.SessionNoRouter, "cannot look for a router: %s", err)
	case len(heard) == 0:
		return netip.Addr{}, say(model.SessionNoRouter, "no router advertises itself on the link: let the router send Router Advertisements there (FRR does for a neighbor with interface; BIRD with protocol radv)")
	case len(heard) > 1:
		return netip.Addr{}, say(model.SessionManyRouters, "several routers advertise themselves on the link, and none is chosen: %s; name each router that should be a peer by its address (%s)",
			addresses(heard), heard[0])
	}
	return heard[0], trouble{}
}

func addresses(list []netip.Addr) string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.WithZone("").String()
	}
	return strings.Join(texts, ", ")
}

// found says what the trouble with finding the peer is.
func (p *peer) found(t trouble) {
	p.mu.Lock()
	same := p.finding == t
	p.finding = t
	p.mu.Unlock()
	if !same {
		p.poke()
	}
}

// toFind is the trouble with finding the peer.
func (p *peer) toFind() trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.finding
}

// unfound is why the peer has no address, or nil.
func (p *peer) unfound(c model.Peer) *failure {
	if c.Interface == "" || c.Address.IsValid() {
		return nil
	}
	t := p.toFind()
	return &failure{reason: t.reason, message: t.message, blocked: true}
}
