package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/xds"
)

// ReasonNoBackends is the reason of a problem: requests for a Service get 503 because
// nothing can take them. No resource has a condition for it: a route is as it should
// be, and so is a Service that is scaled to nothing.
const ReasonNoBackends = "NoBackends"

// ReasonNoHealthy is said of a Service all of whose ready endpoints fail their health check.
const ReasonNoHealthy = "NoHealthyBackends"

// EmptySets names the backend sets that routes send requests to and that have no ready
// backend, or no healthy one, with the hosts that feel it.
func (c *Catalog) EmptySets() []model.Problem {
	var problems []model.Problem
	for _, id := range slices.Sorted(maps.Keys(c.sets)) {
		e := c.sets[id]
		if e.set == nil {
			continue
		}
		_, none := e.set.Accepting()
		ill, asked := "", false
		hosts := map[string]bool{}
		for _, g := range slices.Sorted(maps.Keys(e.groups)) {
			if !none {
				of, all := c.health.AllUnhealthy(health.User{Group: g}, e.set)
				if !all {
					continue
				}
				ill, asked = of, asked || !c.groups[g].group.Presumed()
			}
			for k := range c.groups[g].users {
				if c.sends(k, g) {
					hosts[k.Host] = true
				}
			}
		}
		if len(hosts) == 0 {
			continue
		}
		parts := strings.SplitN(string(id), "/", 3) // namespace/service/port
		if len(parts) != 3 {
			continue
		}
		service := model.Object{Kind: string(snapshot.KindService), Namespace: parts[0], Name: parts[1]}
		message := fmt.Sprintf("no EndpointSlice labelled kubernetes.io/service-name: %s has an address for port %s", parts[1], parts[2])
		switch n := len(e.set.Backends); {
		case n > 0:
			message = fmt.Sprintf("none of the %d endpoints of port %s is ready", n, parts[2])
		case e.set.Refusal != "":
			message = fmt.Sprintf("port %s has no backend: %s", parts[2], e.set.Refusal)
		}
		reason := ReasonNoBackends
		if !none {
			reason, message = ReasonNoHealthy, fmt.Sprintf("every endpoint of port %s fails its health check, such as %s", parts[2], ill)
		}
		becomes := "what is sent there is answered 503"
		if !none && !asked {
			becomes = "no policy asked for the check, so all are used"
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: service.String(), Reason: reason,
			Message: message + "; " + becomes + ", at " + model.List(slices.Collect(maps.Keys(hosts)), ", "),
		})
	}
	return problems
}

// sends says whether a virtual host sends any requests to a group.
func (c *Catalog) sends(k model.HostKey, g model.GroupID) bool {
	s := c.listeners[k.Listener]
	if s == nil || s.listener == nil {
		return false
	}
	if h := s.tls[k.Host]; h != nil && slices.ContainsFunc(h.TCP, func(b model.WeightedGroup) bool { return b.Group == g && b.Weight > 0 }) {
		return true
	}
	h := s.shards[xds.Shard(k.Listener, k.Host)][k.Host]
	return h != nil && slices.ContainsFunc(h.Routes, func(r model.Route) bool {
		return r.Forward != nil && slices.ContainsFunc(r.Forward.Backends, func(b model.WeightedGroup) bool { return b.Group == g && b.Weight > 0 })
	})
}
