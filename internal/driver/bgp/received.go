package bgp

import (
	"fmt"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// received counts the prefixes that a peer sends. None is used, so it keeps the names of at most a few: a router that
// sends all routes of the Internet costs a number.
type received struct {
	names map[string]struct{}
	// more counts announcements that came when there was no room for a name, less withdrawals of prefixes without one.
	// A prefix that is announced twice counts twice.
	more uint32
}

func newReceived() received { return received{names: map[string]struct{}{}} }

// count is how many prefixes there are; exact says that none was left out.
func (r *received) count() (n uint32, exact bool) {
	n = uint32(len(r.names))
	if r.more > 0 {
		return n + 1, false
	}
	return n, true
}

// read counts an UPDATE in, with at most so many names.
func (r *received) read(u *packet.BGPUpdate, most uint32) (err error) {
	defer func() {
		// As with decoding: a peer's bytes must not end the agent.
		if p := recover(); p != nil {
			err = fmt.Errorf("bug: %v", p)
		}
	}()
	add := func(name string) {
		_, known := r.names[name]
		switch {
		case known:
		case uint32(len(r.names)) < most:
			r.names[name] = struct{}{}
		case r.more+1 != 0:
			r.more++
		}
	}
	remove := func(name string) {
		if _, known := r.names[name]; known {
			delete(r.names, name)
		} else if r.more > 0 {
			r.more--
		}
	}
	for _, n := range u.WithdrawnRoutes {
		remove(n.NLRI.String())
	}
	for _, a := range u.PathAttributes {
		switch mp := a.(type) {
		case *packet.PathAttributeMpUnreachNLRI:
			for _, n := range mp.Value {
				remove(mpKey(mp.AFI, mp.SAFI, n))
			}
		case *packet.PathAttributeMpReachNLRI:
			for _, n := range mp.Value {
				add(mpKey(mp.AFI, mp.SAFI, n))
			}
		}
	}
	for _, n := range u.NLRI {
		add(n.NLRI.String())
	}
	return nil
}

func mpKey(afi uint16, safi uint8, n packet.PathNLRI) string {
	if f := packet.NewFamily(afi, safi); f == packet.RF_IPv4_UC || f == packet.RF_IPv6_UC {
		return n.NLRI.String()
	}
	return fmt.Sprintf("%d/%d %s", afi, safi, n.NLRI)
}

// unwanted is the trouble with a peer that sends prefixes.
func (c *connection) unwanted(conf model.Peer) trouble {
	n, exact := c.inbox.count()
	switch {
	case n > conf.MaxPrefixes || !exact:
		return trouble{model.SessionTooManyPrefixes, where(conf) + fmt.Sprintf(
			"it sends more than %d prefixes, and all are ignored: let the router export nothing to this machine", conf.MaxPrefixes)}
	case n > 0:
		return trouble{model.SessionUnwanted, where(conf) + fmt.Sprintf(
			"it sends %d prefixes, and all are ignored: let the router export nothing to this machine", n)}
	}
	return trouble{}
}

// tooMany is the failure of a peer that sends more prefixes than it may, if the session is to end for it.
func (c *connection) tooMany(conf model.Peer) *failure {
	if n, exact := c.inbox.count(); !conf.EndAboveMax || n <= conf.MaxPrefixes && exact {
		return nil
	}
	f := refuse(conf, model.SessionTooManyPrefixes, packet.BGP_ERROR_CEASE, subcodeMaxPrefixes, nil,
		"it sent more than %d prefixes, and this machine wants none: let the router export nothing to it, or raise the peer's limit", conf.MaxPrefixes)
	f.pause = limitPause
	return f
}
