package openstack

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// Labels that every service has of its load balancer.
const (
	labelID   = v1alpha1.LabelLoadBalancerID
	labelName = v1alpha1.LabelLoadBalancerName // as it is, also if no label can have that value
)

// longestName is Octavia's bound for a name.
const longestName = 255

// labelKeyBytes is the length of the longest key of a label: a domain, a slash and a name.
const labelKeyBytes = validation.DNS1123SubdomainMaxLength + 1 + validation.LabelValueMaxLength

// largestWeight bounds weights; Octavia's own bound is 256.
const largestWeight = 65535

// convert makes the services of a load balancer: one of its listeners' default pools, and one
// for each pool that is only the target of L7 policies. It is pure. A load balancer that was
// never active has none.
func convert(t *tree, projectName string, seen time.Time) []*model.UpstreamService {
	lb := &t.loadBalancer
	if lb.gone() || lb.ProvisioningStatus == pendingCreate || lb.ProvisioningStatus == failed && !t.served && !t.wasActive() {
		return nil
	}
	c := converter{tree: t, pools: map[stateOf]*endpoints{}, said: map[saidOf]bool{}, more: map[string]int{}}
	described := "load balancer " + lb.ID
	if lb.Name != "" {
		described += " (" + cloud.Printable(lb.Name) + ")"
	}
	service := func(id, object string) *model.UpstreamService {
		return &model.UpstreamService{
			Key: model.UpstreamKey{Scope: lb.project(), Name: id}, ScopeName: projectName, Object: object,
			Labels: labels(lb), Changed: lb.changed(), Seen: seen,
		}
	}

	c.ports = portsOf(t)
	pools := t.poolsByID()
	main := service(lb.ID, described)
	isDefault := map[string]bool{}
	for i := range t.listeners {
		l := &t.listeners[i]
		port, refused := c.port(l)
		switch {
		case removed(l.ProvisioningStatus):
		case refused != nil:
			main.Refused = append(main.Refused, *refused)
		case l.DefaultPoolID != "":
			isDefault[l.DefaultPoolID] = true
			c.add(main, l, port, pools[l.DefaultPoolID])
		default: // its port has no endpoints: a pool may be set again
			c.addPort(main, l, port)
		}
	}
	services := []*model.UpstreamService{main}

	// Pools of policies, each with the ports of the listeners that lead to it.
	leading := t.leading()
	for i := range t.pools {
		p := &t.pools[i]
		if isDefault[p.ID] || removed(p.ProvisioningStatus) {
			continue
		}
		var s *model.UpstreamService
		for _, l := range leading[p.ID] {
			port, refused := c.port(l)
			if refused != nil || removed(l.ProvisioningStatus) {
				continue
			}
			if s == nil {
				s = service(p.ID, "pool "+p.ID+" of "+described)
			}
			c.add(s, l, port, p)
		}
		if s != nil {
			services = append(services, s)
		}
	}
	for _, s := range services {
		slices.SortFunc(s.Ports, func(a, b model.UpstreamPort) int {
			return cmp.Or(cmp.Compare(a.Port, b.Port), strings.Compare(a.Name, b.Name))
		})
		slices.SortFunc(s.Slices, func(a, b model.UpstreamSlice) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(s.Refused, func(a, b model.UpstreamRefusal) int {
			return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
		})
		more := c.more[s.Key.Name] + max(0, len(s.Refused)-maxRefusals)
		if s.Refused = s.Refused[:min(len(s.Refused), maxRefusals)]; more > 0 {
			s.Refused = append(slices.Clone(s.Refused), model.UpstreamRefusal{
				Object: s.Object, Reason: model.RefusedAnswer, Message: fmt.Sprintf("%d more of its listeners and members are left out", more),
			})
		}
	}
	slices.SortFunc(services, func(a, b *model.UpstreamService) int { return strings.Compare(a.Key.Name, b.Key.Name) })
	return services
}

// wasActive reports whether some part of the load balancer was active: a load balancer whose
// creation failed has no such part.
func (t *tree) wasActive() bool {
	for i := range t.listeners {
		if s := t.listeners[i].ProvisioningStatus; s == active || s == pendingUpdate {
			return true
		}
	}
	for i := range t.pools {
		if s := t.pools[i].ProvisioningStatus; s == active || s == pendingUpdate {
			return true
		}
	}
	return false
}

// leading are the listeners with an L7 policy that redirects to a pool, by ID of the pool and
// in their order. Policies that are down count: a route of ours names the pool without asking
// the listener.
func (t *tree) leading() map[string][]*listener {
	targets := map[string][]string{} // IDs of pools, by ID of their listener
	for i := range t.policies {
		if p := &t.policies[i]; p.Action == "REDIRECT_TO_POOL" && !removed(p.ProvisioningStatus) {
			targets[p.ListenerID] = append(targets[p.ListenerID], p.RedirectPoolID)
		}
	}
	leading := map[string][]*listener{}
	for i := range t.listeners {
		l := &t.listeners[i]
		for _, id := range targets[l.ID] {
			if all := leading[id]; len(all) == 0 || all[len(all)-1] != l {
				leading[id] = append(all, l)
			}
		}
	}
	return leading
}

// removed reports whether a part is gone, or about to be.
func removed(provisioning string) bool {
	return provisioning == deleted || provisioning == pendingDelete
}

// labels are the tags, and the ID and the name of the load balancer. Tags that no label can
// express are left out.
func labels(lb *loadBalancer) map[string]string {
	all := map[string]string{}
	for _, tag := range lb.Tags {
		key, value, _ := strings.Cut(tag, "=")
		if len(key) <= labelKeyBytes && len(validation.IsQualifiedName(key)) == 0 && isLabelValue(value) {
			all[key] = value
		}
	}
	all[labelID] = lb.ID
	delete(all, labelName)
	if lb.Name != "" && len(lb.Name) <= longestName {
		all[labelName] = lb.Name
	}
	return all
}

// isLabelValue looks at the length first: the other check runs an expression over all of the
// text, and repeats it in its message.
func isLabelValue(text string) bool {
	return len(text) <= validation.LabelValueMaxLength && len(validation.IsValidLabelValue(text)) == 0
}

// converter makes the ports and slices of one load balancer.
type converter struct {
	tree  *tree
	ports map[string]portResult // by ID of their listener
	pools map[stateOf]*endpoints
	said  map[saidOf]bool
	more  map[string]int // refusals than those of a service, by its name
	given int            // endpoints, of all listeners together
}

// What one load balancer may have. A pool can be that of many listeners, and each has its endpoints.
const (
	maxServicePorts = 1000
	maxEndpoints    = listEntries
	// maxRefusals bounds what is said about one service. Of the others the number is said.
	maxRefusals = 16
)

// portResult is the port of a listener, or why it has none.
type portResult struct {
	port    model.UpstreamPort
	refused *model.UpstreamRefusal
}

func (c *converter) port(l *listener) (model.UpstreamPort, *model.UpstreamRefusal) {
	r := c.ports[l.ID]
	return r.port, r.refused
}

// portsOf are the ports of a load balancer's listeners. Listeners of one port number and
// different protocols have different names: the first in the order TCP, UDP, SCTP has the plain one.
func portsOf(t *tree) map[string]portResult {
	ports := map[string]portResult{}
	refuse := func(l *listener, reason model.RefusalReason, format string, args ...any) {
		ports[l.ID] = portResult{refused: &model.UpstreamRefusal{
			Object: "listener " + l.ID + " of load balancer " + t.loadBalancer.ID, Reason: reason, Message: fmt.Sprintf(format, args...),
		}}
	}
	names, owners := map[string]bool{}, map[string]string{}
	for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
		for i := range t.listeners {
			l := &t.listeners[i]
			if removed(l.ProvisioningStatus) || transport(l.Protocol) != protocol {
				continue
			}
			if l.ProtocolPort < 1 || l.ProtocolPort > 65535 {
				refuse(l, model.RefusedPort, "protocol_port is %d, which is no port", l.ProtocolPort)
				continue
			}
			name := fmt.Sprintf("port-%d", l.ProtocolPort)
			owner := name + "/" + protocol
			if first := owners[owner]; first != "" {
				refuse(l, model.RefusedPort, "listener %s has port %d, too", first, l.ProtocolPort)
				continue
			}
			owners[owner] = l.ID
			if names[name] {
				name += "-" + strings.ToLower(protocol)
			}
			names[name] = true
			ports[l.ID] = portResult{port: model.UpstreamPort{Name: name, Port: uint16(l.ProtocolPort), Protocol: protocol}}
		}
	}
	for i := range t.listeners {
		l := &t.listeners[i]
		switch {
		case removed(l.ProvisioningStatus) || transport(l.Protocol) != "":
		case l.Protocol == "PROMETHEUS":
			refuse(l, model.RefusedProtocol, "its protocol is PROMETHEUS: it serves metrics of the load balancer and has no members")
		default:
			refuse(l, model.RefusedProtocol, "its protocol is %q; known are TCP, HTTP, HTTPS, TERMINATED_HTTPS, PROXY, UDP and SCTP", l.Protocol)
		}
	}
	return ports
}

// transport is the protocol under that of a listener; empty: it has no backends.
func transport(protocol string) string {
	switch protocol {
	case "TCP", "HTTP", "HTTPS", "TERMINATED_HTTPS", "PROXY":
		return "TCP"
	case "UDP", "SCTP":
		return protocol
	}
	return ""
}

// addPort gives a service the port of a listener; false: it has very many.
func (c *converter) addPort(s *model.UpstreamService, l *listener, port model.UpstreamPort) bool {
	if len(s.Ports) == maxServicePorts {
		c.refuse(s, l, "its load balancer has very many listeners, and the ports of %d are read", maxServicePorts)
		return false
	}
	s.Ports = append(s.Ports, port)
	return true
}

// refuse notes why something of a listener is left out.
func (c *converter) refuse(s *model.UpstreamService, l *listener, format string, args ...any) {
	s.Refused = append(s.Refused, model.UpstreamRefusal{
		Object: "listener " + l.ID + " of load balancer " + c.tree.loadBalancer.ID, Reason: model.RefusedAnswer, Message: fmt.Sprintf(format, args...),
	})
}

// add gives a service the port of a listener, with a pool's members as its endpoints.
func (c *converter) add(s *model.UpstreamService, l *listener, port model.UpstreamPort, p *pool) {
	if !c.addPort(s, l, port) {
		return
	}
	if p == nil {
		c.refuse(s, l, "its pool %s does not exist", l.DefaultPoolID)
		return
	}
	all := c.endpointsOf(p, up(c.tree.loadBalancer.AdminStateUp) && up(l.AdminStateUp) && up(p.AdminStateUp))
	if said := (saidOf{s.Key.Name, p.ID}); !c.said[said] {
		c.said[said] = true
		s.Refused = append(s.Refused, all.refused...)
		c.more[s.Key.Name] += all.more
	}
	if c.given += all.n; all.n > 0 && c.given > maxEndpoints {
		c.refuse(s, l, "its pool has %d endpoints; at most %d of all listeners of a load balancer are read", all.n, maxEndpoints)
		return
	}
	for key, endpoints := range all.parts {
		name := fmt.Sprintf("%s-%d", port.Name, key.port)
		if key.v6 {
			name += "-ipv6"
		}
		s.Slices = append(s.Slices, model.UpstreamSlice{
			Name: name, Endpoints: endpoints,
			Ports: []model.UpstreamPort{{Name: port.Name, Port: key.port, Protocol: port.Protocol}},
		})
	}
}

// endpoints are those of a pool, as all its listeners have them.
type endpoints struct {
	parts   map[part][]model.UpstreamEndpoint
	n       int
	refused []model.UpstreamRefusal
	more    int // refusals than these
}

// part are the endpoints of one port and family.
type part struct {
	port uint16
	v6   bool
}

// stateOf is a pool, and whether it is enabled as far as a listener is concerned.
type stateOf struct {
	pool    string
	enabled bool
}

// saidOf is a service for which the refusals of a pool were said.
type saidOf struct{ service, pool string }

// endpointsOf are the endpoints of a pool. Listeners share them, so that many listeners of one pool take little memory.
func (c *converter) endpointsOf(p *pool, enabled bool) *endpoints {
	state := stateOf{p.ID, enabled}
	if all := c.pools[state]; all != nil {
		return all
	}
	all := &endpoints{parts: map[part][]model.UpstreamEndpoint{}}
	c.pools[state] = all
	taken := map[netip.AddrPort]string{}
	for i := range c.tree.members[p.ID] {
		m := &c.tree.members[p.ID][i]
		if m.ProvisioningStatus == deleted {
			continue
		}
		refuse := func(reason model.RefusalReason, format string, args ...any) {
			if len(all.refused) >= maxRefusals {
				all.more++
				return
			}
			all.refused = append(all.refused, model.UpstreamRefusal{
				Object: "member " + m.ID + " of pool " + p.ID, Reason: reason, Message: fmt.Sprintf(format, args...),
			})
		}
		address, err := netip.ParseAddr(m.Address)
		switch {
		case m.Address == "":
			refuse(model.RefusedNoAddress, "it has no address")
			continue
		case err != nil || address.Zone() != "":
			refuse(model.RefusedNoAddress, "%q is no address that other machines can use", m.Address)
			continue
		case m.ProtocolPort < 1 || m.ProtocolPort > 65535:
			refuse(model.RefusedPort, "protocol_port is %d, which is no port", m.ProtocolPort)
			continue
		}
		at := netip.AddrPortFrom(address.Unmap(), uint16(m.ProtocolPort))
		if first := taken[at]; first != "" {
			refuse(model.RefusedAnswer, "member %s has the address %s, too", first, at)
			continue
		}
		endpoint, ok := m.endpoint(at.Addr(), enabled)
		if !ok {
			refuse(model.RefusedAnswer, "its weight is %d; it must be at least 0 and at most %d", *m.Weight, largestWeight)
			continue
		}
		taken[at] = m.ID
		key := part{at.Port(), at.Addr().Is6()}
		all.parts[key] = append(all.parts[key], endpoint)
		all.n++
	}
	for _, part := range all.parts {
		slices.SortFunc(part, func(a, b model.UpstreamEndpoint) int { return a.Address.Compare(b.Address) })
	}
	return all
}

// endpoint of a member; false: its weight is none. A member of weight 0, and one that is
// about to be deleted, finish their connections.
func (m *member) endpoint(address netip.Addr, enabled bool) (model.UpstreamEndpoint, bool) {
	e := model.UpstreamEndpoint{Address: address, Backup: m.Backup, Weight: 1}
	if m.Weight != nil {
		if *m.Weight < 0 || *m.Weight > largestWeight {
			return e, false
		}
		e.Weight = max(1, uint32(*m.Weight))
	}
	switch {
	case !enabled || !up(m.AdminStateUp) || m.OperatingStatus == failed:
	case m.ProvisioningStatus == pendingDelete || m.OperatingStatus == draining || m.Weight != nil && *m.Weight == 0:
		e.Serving, e.Terminating = true, true
	default:
		e.Ready, e.Serving = true, true
	}
	return e, true
}
