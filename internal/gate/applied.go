package gate

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// routed says that Envoy has answered about everything that leads requests.
func (g *Gate) routed() bool {
	return g.open[typeListener]+g.open[typeScope]+g.open[typeRoute] == 0
}

// Applied is the largest checkpoint of which everything is accepted by Envoy or
// listed in Problems; the zero revision if there is none. It does not go back while
// Envoy keeps its stream: what Envoy has reason to ask for only now, because a
// listener that it refused came to life, say, holds up later checkpoints only.
func (g *Gate) Applied() delta.Revision {
	limit := g.ordinal
	for _, d := range g.outstanding {
		limit = min(limit, d.owed)
	}
	best := -1
	for i, c := range g.checkpoints {
		if c.ordinal < limit || c.ordinal <= g.floor {
			best = i
		}
	}
	if best < 0 {
		return delta.Revision{}
	}
	g.checkpoints = g.checkpoints[best:]
	g.floor = g.checkpoints[0].ordinal
	return g.checkpoints[0].revision
}

// OpenListeners is the number of listeners that Envoy has yet to apply; keyless says that those
// with private keys wait for a plane.
func (g *Gate) OpenListeners() (n int, keyless bool) { return g.open[typeListener], g.keyless }

// Runs says whether Envoy runs a listener as the plane wants it.
func (g *Gate) Runs(listener string) bool {
	it := g.items[key{typeListener, listener}]
	return it != nil && it.fault == "" && g.isApplied(it)
}

// ProblemsVersion changes whenever Problems may have changed.
func (g *Gate) ProblemsVersion() uint64 { return g.problems }

// Problems lists what Envoy does not run as the plane wants it, in a fixed order.
func (g *Gate) Problems() []*agentv1.Problem {
	var list []*agentv1.Problem
	for _, k := range slices.SortedFunc(maps.Keys(g.faulty), compareKeys) {
		if k.kind == typeRoute {
			if s := g.shards[k.name]; s != nil {
				list = append(list, g.shardProblems(s)...)
			}
			continue
		}
		it := g.items[k]
		list = append(list, &agentv1.Problem{
			Kind: it.faultKind, TypeUrl: string(k.kind), Name: k.name, Version: version(it.target),
			Message: advise(it, it.fault),
		})
	}
	return list
}

// advise says what to do about a listener's port, which is what is mostly wrong
// with a listener, before Envoy's own words.
func advise(it *item, message string) string {
	message = strings.TrimSpace(message)
	if it.kind != typeListener || it.target == nil || !bindRefused(message) {
		return message
	}
	port := listenerPort(it.target)
	if port == 0 {
		return message
	}
	p := strconv.Itoa(port)
	what := "port " + p + " is in use by another process of this machine: find it with `ss -ltnp 'sport = :" + p +
		"'` and stop it, or give the listener another port"
	if strings.Contains(message, "Permission denied") {
		what = "Envoy may not listen at port " + p + ": run the agent as root or with the capability CAP_NET_BIND_SERVICE, or, as another user, give Envoy's binary the right with " +
			"`setcap cap_net_bind_service=+ep`, or give the listener a port above 1023"
	}
	return what + "; it is tried again every " + listenerRetry.String() + ": " + message
}

// listenerPort is the TCP port of a listener, 0 if it has none.
func listenerPort(r *delta.Resource) int {
	var l listenerv3.Listener
	if err := unmarshal(r, &l); err != nil {
		return 0
	}
	return int(l.GetAddress().GetSocketAddress().GetPortValue())
}

// bindRefused recognises what Envoy says when it may not listen at an address.
func bindRefused(message string) bool {
	return strings.Contains(message, "Address already in use") || strings.Contains(message, "cannot bind")
}
