package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/report"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// vipPool are the addresses that the demo's edges announce: of the networks that are
// kept for documentation (RFC 5737, RFC 3849).
var vipPool = []string{"203.0.113.80/29", "2001:db8:80::80/125"}

// The timers of BFD between the router and the edges: an edge that is gone is noticed
// after interval times multiplier.
const (
	bfdInterval   = 300 * time.Millisecond
	bfdMultiplier = 3
)

// gateway is the lab's router.
type gateway struct{ *router.Router }

func (g gateway) paths() (*router.Paths, error) { return g.Paths(lab.SegmentClients) }

// announcement returns the manifests that make the edges announce VIPs to the router.
func (st *stage) announcement() string {
	return rig.PoolManifest("public", vipPool) + "---\n" +
		rig.PeerManifest("upstream", st.router.Machine(), fmt.Sprintf("bfd: {interval: %s, multiplier: %d}", bfdInterval, bfdMultiplier))
}

// owner of the VIPs of a route: the kind of a VIP's owner.
func (r *route) owner() string {
	if r.kind == "HTTPRoute" {
		return "Gateway"
	}
	return r.kind
}

// learnVIPs waits until the plane has given the Gateway and the IngressRoutes an
// address of each family, and notes them.
func (st *stage) learnVIPs(ctx context.Context) error {
	return st.Await(ctx, "the VIPs", func(ctx context.Context) error {
		status, err := st.plane.Status(ctx)
		if err != nil {
			return err
		}
		vips := map[string][]netip.Addr{}
		for _, v := range status.VIPs {
			vips[v.Owner.Kind] = append(vips[v.Owner.Kind], v.Address)
		}
		for _, r := range st.routes {
			got := vips[r.owner()]
			slices.SortFunc(got, netip.Addr.Compare)
			if len(got) != 2 || !got[0].Is4() || !got[1].Is6() {
				return fmt.Errorf("the %s has %v, want an IPv4 and an IPv6 address", r.owner(), got)
			}
		}
		st.vips = vips
		return nil
	})
}

// edgeAt is the edge with the address, "" if none has it.
func (st *stage) edgeAt(a netip.Addr) string {
	for _, m := range st.edges {
		if m.Addr4() == a || m.Addr6() == a {
			return m.Name()
		}
	}
	return ""
}

func (st *stage) edgesAt(hops []netip.Addr) []string {
	var names []string
	for _, h := range hops {
		name := st.edgeAt(h)
		if name == "" {
			name = h.String()
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (st *stage) edgeNames() []string {
	var names []string
	for _, m := range st.edges {
		names = append(names, m.Name())
	}
	return names
}

// followed waits until the router spread every VIP over exactly these edges at some time
// after the moment, and returns when it first did so with the last one.
func (t *traffic) followed(ctx context.Context, since time.Time, edges ...string) (time.Time, error) {
	var at time.Time
	err := t.st.Await(ctx, "the router to spread the VIPs over "+inProse(edges), func(context.Context) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		at = time.Time{}
		for vip, tables := range t.tables {
			i := slices.IndexFunc(tables, func(x table) bool { return !x.since.Before(since) && slices.Equal(x.edges, edges) })
			if i < 0 {
				return fmt.Errorf("%s is spread over %s", vip, inProse(tables[len(tables)-1].edges))
			}
			if tables[i].since.After(at) {
				at = tables[i].since
			}
		}
		return t.err
	})
	return at, err
}

// settled is nil if the router spreads every VIP over exactly these edges now.
func (t *traffic) settled(edges ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for vip, tables := range t.tables {
		if now := tables[len(tables)-1].edges; !slices.Equal(now, edges) {
			return fmt.Errorf("%s is spread over %s", vip, inProse(now))
		}
	}
	return t.err
}

func inProse(names []string) string {
	switch n := len(names); n {
	case 0:
		return "nothing"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}

// NextHops is a VIP and where the router's kernel sends its packets.
type NextHops struct {
	VIP   netip.Addr `json:"vip"`
	Owner string     `json:"owner"`
	Edges []string   `json:"edges"`
}

// nextHops asks the router's kernel for the next hops of all VIPs.
func (st *stage) nextHops(ctx context.Context) ([]NextHops, error) {
	table, err := st.router.Table(ctx)
	if err != nil {
		return nil, err
	}
	var all []NextHops
	for _, r := range table {
		h := NextHops{VIP: r.Prefix.Addr(), Owner: "nobody", Edges: st.edgesAt(r.NextHops)}
		for kind, vips := range st.vips {
			if slices.Contains(vips, h.VIP) {
				h.Owner = kind
			}
		}
		all = append(all, h)
	}
	return all, nil
}

func (d *demo) printNextHops(hops []NextHops) {
	t := report.Table{Columns: []string{"VIP", "of", "next hops in the router's kernel"}}
	for _, h := range hops {
		owner := h.Owner
		if owner == "IngressRoute" {
			owner = "IngressRoutes"
		}
		t.Add(h.VIP.String(), owner, strings.Join(h.Edges, " "))
	}
	_ = t.Write(d.Out, "      ")
}

// sessionsUp waits until the plane sees every edge's session with the router.
func (st *stage) sessionsUp(ctx context.Context) error {
	return st.Await(ctx, "the sessions with the router", func(ctx context.Context) error {
		status, err := st.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, m := range st.edges {
			if !slices.ContainsFunc(status.Sessions, func(s v1.SessionStatus) bool {
				return s.Machine == m.Name() && s.State == v1.SessionEstablished
			}) {
				return fmt.Errorf("%s has no established session", m.Name())
			}
		}
		return nil
	})
}
