package catalog

import (
	"maps"
	"slices"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// reasonUnfit is the reason of a problem: a resource cannot be sent, and machines keep
// the version of it that they have.
const reasonUnfit = "CannotBeSent"

// UnfitProblems says which resources cannot be sent, and which hosts feel it.
func (c *Catalog) UnfitProblems() []model.Problem {
	var problems []model.Problem
	for k, why := range c.unfit {
		subject, message := ShortType(k.Type)+" "+k.Name, why
		if k.Host != "" {
			subject = "host " + k.Host + " at " + string(k.Listener)
			message += "; machines keep the version that they have, or answer 503 or 404 without one"
		} else {
			message += "; machines keep the version that they have, if any"
			if hosts := c.hostsOn(k); len(hosts) > 0 {
				message += "; affected hosts: " + model.List(hosts, ", ")
			}
		}
		problems = append(problems, model.Problem{Severity: model.SeverityError, Subject: subject, Reason: reasonUnfit, Message: message})
	}
	return problems
}

// hostsOn are the hosts that one resource of routes or of a group serves.
func (c *Catalog) hostsOn(k Key) []string {
	hosts := map[string]bool{}
	switch k.Type {
	case agentv1.RouteType:
		if s := c.listeners[k.Listener]; s != nil {
			for h := range s.shards[k.shard] {
				hosts[h] = true
			}
		}
	case agentv1.ClusterType, agentv1.EndpointType:
		if e := c.groups[k.group]; e != nil {
			for u := range e.users {
				if u.Host != "" {
					hosts[u.Host] = true
				}
			}
		}
	case agentv1.SecretType:
		for h := range c.HostsWith(k.Name) {
			if h.Host != "" {
				hosts[h.Host] = true
			}
		}
	}
	return slices.Collect(maps.Keys(hosts))
}
