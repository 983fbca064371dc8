package gate

import (
	"slices"
	"strconv"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"fairlead.dev/internal/delta"
)

// set is the load assignment of a name, made when it is first spoken of.
func (g *Gate) set(name string) *endpoints {
	s := g.sets[name]
	if s == nil {
		s = &endpoints{clusters: map[string]struct{}{}, flying: map[string]uint64{}}
		g.sets[name] = s
	}
	return s
}

// pushedCluster follows a change of what is live of a cluster.
func (g *Gate) pushedCluster(c *cluster, old *delta.Resource) {
	was := c.info.set
	c.info = clusterInfo{}
	if c.live != nil {
		info, err := readCluster(c.live)
		if err == nil {
			c.info = info
		}
	}
	if was != c.info.set || c.live == nil {
		if was != "" {
			delete(g.set(was).clusters, c.name)
			g.touch(key{typeEndpoint, was})
			g.retrack(key{typeEndpoint, was})
			if set := g.sets[was]; len(set.clusters)+len(set.flying) == 0 {
				delete(g.sets, was)
			}
		}
		if c.info.set != "" {
			g.set(c.info.set).clusters[c.name] = struct{}{}
			k := key{typeEndpoint, c.info.set}
			if g.items[k] == nil {
				g.items[k] = &item{key: k, known: true}
			}
			g.touch(k)
			g.retrack(k)
		}
	}
	switch {
	case c.live == nil:
		c.ready, c.sentSeq, c.ackSeq = false, 0, 0
		c.cleared, c.resumed, c.bumped = false, false, false
		delete(g.unwarm, c.name)
		delete(g.polling, c.name)
	case old == nil:
		g.unwarm[c.name] = struct{}{}
	case !c.ready:
		c.ackSeq, c.cleared = 0, false // what was acked is not what will warm
	}
}

// sent says that a response with these names is on its way to Envoy. It returns what must
// be sent again after it, though Envoy will not ask for it.
func (g *Gate) sent(t delta.Type, names []string) []key {
	g.seq++
	var again []key
	for _, name := range names {
		switch t {
		case typeEndpoint:
			if set := g.sets[name]; set != nil {
				set.sentSeq = g.seq
			}
		case typeCluster:
			if c := g.clusters[name]; c != nil {
				g.landed(c)
				c.sentSeq = g.seq
				if c.info.set != "" {
					c.flies = c.info.set
					g.set(c.flies).flying[name] = g.seq
					again = append(again, key{typeEndpoint, c.info.set})
				}
			}
		}
	}
	if t == typeListener && len(g.leading) == 0 && slices.ContainsFunc(names, g.leads) {
		again = append(again, g.liveScopes()...)
	}
	slices.SortFunc(again, compareKeys)
	return slices.Compact(again)
}

// leads says whether a listener finds routes for requests.
func (g *Gate) leads(listener string) bool {
	it := g.items[key{typeListener, listener}]
	return it != nil && it.live != nil && !it.needs(it.live).bytes
}

// liveScopes are those that Envoy is sent again with its first listener that leads. Listeners
// share one subscription to all scopes, and Envoy drops what came by it with the last
// of them, a refused one too. It never says so: the next one finds Envoy subscribed, asks for
// nothing, and would route nothing once its fetch has timed out.
func (g *Gate) liveScopes() []key {
	var scopes []key
	for k, it := range g.items {
		if k.kind == typeScope && it.live != nil {
			scopes = append(scopes, k)
		}
	}
	return scopes
}

// landed: what was sent of a cluster waits for no endpoints any more.
func (g *Gate) landed(c *cluster) {
	if c.flies == "" {
		return
	}
	set := g.set(c.flies)
	delete(set.flying, c.name)
	if len(set.clusters)+len(set.flying) == 0 {
		delete(g.sets, c.flies)
	}
	c.flies = ""
}

// ackedCluster notes Envoy's acceptance of the live version. Once it has started up,
// Envoy accepts only when every cluster of the response is warm.
func (g *Gate) ackedCluster(c *cluster) {
	c.ackSeq = g.seq
	g.judge(c)
}

// ackedSet notes Envoy's acceptance of a load assignment.
func (g *Gate) ackedSet(it *item, version string) {
	set := g.set(it.name)
	sent := set.sentSeq
	if set.sentSeq = 0; sent == 0 {
		sent = g.connectSeq // it has had them since before the stream
	}
	if version == "" {
		return
	}
	set.real = version != emptyVersion
	set.ackOf, set.ackSeq = max(set.ackOf, sent), g.seq
	for user, at := range set.flying {
		if at <= set.ackOf {
			delete(set.flying, user)
			g.clusters[user].flies = ""
		}
	}
	if sent == g.connectSeq {
		g.feed(it.name) // a cluster may have come before Envoy asked
	}
	for user := range set.clusters {
		if c := g.clusters[user]; c != nil && !c.ready {
			g.judge(c)
		}
	}
}

// feed makes Envoy take a load assignment again if a cluster waits for it. What Envoy
// holds already, or keeps because it refused something newer, warms no cluster.
func (g *Gate) feed(name string) {
	set := g.set(name)
	for _, sent := range set.flying {
		if sent > set.ackOf {
			g.resend = append(g.resend, name)
			return
		}
	}
}

// emptyVersion is the version of a load assignment that stands for a refused one.
const emptyVersion = "none"

// noEndpoints is a load assignment without endpoints.
func noEndpoints(name string) *delta.Resource {
	r, err := delta.NewResource(name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
	if err != nil {
		return nil // the name is not valid UTF-8
	}
	r.Version = emptyVersion
	return &r
}

// isFurnished says whether there is something to send for the load assignment and the
// secrets that a cluster uses. A cluster without would be in use, empty.
func (g *Gate) isFurnished(r *delta.Resource) bool {
	info, err := readCluster(r)
	if err != nil {
		return true
	}
	if !g.hasSecrets(info.secrets) {
		return false
	}
	if info.set == "" {
		return true
	}
	it := g.items[key{typeEndpoint, info.set}]
	return it != nil && (it.target != nil || it.live != nil)
}

// liveSets are the load assignments that Envoy may follow.
func (g *Gate) liveSets() []string {
	var names []string
	for k, it := range g.items {
		if k.kind == typeEndpoint && it.live != nil {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	return names
}

// fed says whether Envoy has accepted endpoints for the cluster after the cluster
// itself.
func (g *Gate) fed(c *cluster) bool {
	if c.info.set == "" {
		return true
	}
	set := g.sets[c.info.set]
	return set != nil && set.real && set.ackSeq > 0 && set.ackOf >= c.sentSeq
}

// judge decides whether a cluster has become warm.
func (g *Gate) judge(c *cluster) {
	delete(g.polling, c.name)
	switch {
	case c.ready || c.live == nil || c.ackSeq == 0 || !g.fed(c):
		return
	case (!c.info.simple || c.resumed) && !c.cleared:
		g.polling[c.name] = struct{}{}
		return
	}
	g.warm(c)
}

// warm lets virtual hosts that wait for the cluster go.
func (g *Gate) warm(c *cluster) {
	c.ready = true
	delete(g.unwarm, c.name)
	delete(g.polling, c.name)
	for shard := range g.waiters[c.name] {
		g.touch(key{typeRoute, shard})
	}
}

// isReady says whether Envoy can send requests to a cluster.
func (g *Gate) isReady(name string) bool {
	c := g.clusters[name]
	return c != nil && c.ready && c.live != nil
}

// use counts a virtual host form that Envoy may hold, or no longer holds.
func (g *Gate) use(f *form, by int) {
	for _, name := range f.clusters {
		c := g.clusters[name]
		if c == nil {
			if by < 0 {
				continue
			}
			it := &item{key: key{typeCluster, name}, known: true}
			g.items[it.key] = it
			c = &cluster{item: it}
			g.clusters[name] = c
		}
		if c.uses += by; c.uses == 0 && c.target == nil {
			g.touch(c.key)
		} else if c.uses > 0 {
			c.isIdle = false
		}
	}
}

// whyWaiting says in words what a cluster lacks.
func (g *Gate) whyWaiting(name string) string {
	c := g.clusters[name]
	if c == nil || c.live == nil {
		return "cluster " + strconv.Quote(name) + " has not arrived"
	}
	if msg, bad := c.refuse[c.base]; bad {
		return "cluster " + strconv.Quote(name) + " was refused: " + msg
	}
	if c.info.set != "" {
		it := g.items[key{typeEndpoint, c.info.set}]
		if it == nil || it.target == nil {
			return "the endpoints of cluster " + strconv.Quote(name) + " have not arrived"
		}
		if msg, bad := it.refuse[it.target.Version]; bad {
			return "the endpoints of cluster " + strconv.Quote(name) + " were refused: " + msg
		}
	}
	switch {
	case c.ackSeq == 0:
		return "the proxy has not answered about cluster " + strconv.Quote(name)
	case !g.fed(c):
		return "the proxy has not answered about the endpoints of cluster " + strconv.Quote(name)
	default:
		return "cluster " + strconv.Quote(name) + " is still warming: its secrets have not arrived"
	}
}

// routesLive says whether Envoy would be given a route configuration.
func (g *Gate) routesLive(name string) bool {
	s := g.shards[name]
	return s != nil && s.live != nil
}
