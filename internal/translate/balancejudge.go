package translate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// balanceUse is what settings are for: a port of an address.
type balanceUse struct {
	transport model.Transport
	port      uint16
	proxies   bool // the backends are proxies
	services  []servicePorts
	sets      []model.Target
	// anchors are what may say how it is balanced, the nearest first.
	anchors []policyAnchor
	owner   model.Object   // who has the addresses
	sources []netip.Prefix // that the owner lets in, beside the policy's
}

// servicePorts are the ports at which the backends of a Service's port answer.
type servicePorts struct {
	set   model.SetID
	ports []uint16
}

// fit leaves out what cannot be where it is used, and says what and why. The problems do
// not depend on the port.
func (s balanceSettings) fit(u balanceUse) (balanceSettings, []string) {
	var problems []string
	fail := func(path, problem string) { problems = append(problems, "spec."+path+": "+problem) }
	if u.proxies {
		switch s.mode {
		case model.ModeNAT, model.ModeDSRIPIP, model.ModeDSRL2:
			fail("mode", string(s.mode)+" does not lead to proxies: only Local and DSRGeneve do")
			s.mode = ""
		}
		if s.check != nil {
			fail("healthCheck", "the backends are proxies, which their machines watch")
			s.check = nil
		}
		if s.panics != nil {
			fail("panicThreshold", "the backends are proxies, which their machines watch")
			s.panics = nil
		}
		if s.weights != nil {
			fail("weights", "the backends are proxies, of which all count the same")
			s.weights = nil
		}
		if s.quic != nil {
			fail("quic", "the proxies write no server IDs")
			s.quic = nil
		}
	}
	if s.quic != nil && u.transport != model.UDP {
		fail("quic", "is for UDP, and this is TCP")
		s.quic = nil
	}
	if s.mode == model.ModeDSRIPIP || s.mode == model.ModeDSRL2 {
		for _, service := range u.services {
			if i := slices.IndexFunc(service.ports, func(p uint16) bool { return p != u.port }); i >= 0 {
				fail("mode", string(s.mode)+" leaves packets as they are, for port "+strconv.Itoa(int(u.port))+", and backends of "+string(service.set)+
					" answer at port "+strconv.Itoa(int(service.ports[i]))+": give both one number, or choose another mode")
				s.mode = ""
				break
			}
		}
	}
	return s, problems
}

// answersAt are the ports at which the backends of sets answer.
func (t *frontendTables) answersAt(c *memo.Context, sets []model.Target) []servicePorts {
	var list []servicePorts
	for _, target := range sets {
		if target.Set == "" {
			continue
		}
		ports := map[uint16]bool{}
		for _, b := range t.backend.backendsOf(c, target.Set) {
			ports[b.Address.Port()] = true
		}
		list = append(list, servicePorts{target.Set, slices.Sorted(maps.Keys(ports))})
	}
	return list
}

// judgeBalancing says why a LoadBalancerPolicy does not hold for a target, or what is worth
// knowing of it if it does.
func (t *frontendTables) judgeBalancing(c *memo.Context, policy snapshot.Name, target policyAnchor) (problem, note string) {
	f := t.policy.balance.Get(c, policy)
	uses, none := t.balanceUses(c, target, f.settings.mode)
	if none != "" {
		return none, ""
	}
	counts, locked, remarks := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, u := range uses {
		var nearer balanceSettings
		for _, anchor := range u.anchors {
			if anchor == target {
				break
			}
			nearer, _ = nearer.under(t.settingsAt(c, anchor))
		}
		fitted, problems := f.settings.fit(u)
		_, unfit := nearer.under(fitted)
		problems = append(problems, unfit...)
		if nearer.sources == nil {
			for _, p := range t.lockedOut(c, f.settings, u) {
				locked[p]++
			}
		}
		for _, p := range problems {
			counts[p]++
		}
		for _, remark := range t.remarks(c, f.settings, u) {
			remarks[remark] = true
		}
	}
	var everywhere, somewhere []string
	for _, p := range slices.Sorted(maps.Keys(counts)) {
		if counts[p] == len(uses) {
			everywhere = append(everywhere, p)
		} else {
			somewhere = append(somewhere, p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(locked)) {
		if locked[p] == len(uses) {
			everywhere = append(everywhere, p)
		} else {
			remarks[p+" (at some ports)"] = true
		}
	}
	if len(somewhere) > 0 {
		note += "; not used at some ports: " + strings.Join(somewhere, "; ")
	}
	if f.settings.plane == "" {
		note += f.settings.needsIPVS()
	}
	for _, remark := range slices.Sorted(maps.Keys(remarks)) {
		note += "; " + remark
	}
	return strings.Join(everywhere, "; "), note
}

// needsIPVS notes what settings without a data plane ask of machines: those that no other data
// plane can carry out leave nothing but IPVS.
func (s balanceSettings) needsIPVS() string {
	fields := s.ofIPVS()
	switch len(fields) {
	case 0:
		if s.scheduler == string(v1alpha1.SchedulerMH) {
			return "; spec.scheduler: mh only counts where a machine balances with IPVS; XDP and nftables hash, too"
		}
		return ""
	case 1:
		fields[0] += " needs"
	default:
		fields[1] += " need"
	}
	return "; " + strings.Join(fields, " and ") + " IPVS: XDP and nftables are not used, and a machine without IPVS balances nothing here"
}

// settingsAt are what the policy says that holds at an anchor.
func (t *frontendTables) settingsAt(c *memo.Context, anchor policyAnchor) (s balanceSettings) {
	if p := t.anchor.holder(c, anchor); !p.none() {
		if f := t.policy.balance.Get(c, p.name); f != nil {
			s = f.settings
		}
	}
	return s
}

// lockedOut says where source ranges let nobody in at all. They hold all the same.
func (t *frontendTables) lockedOut(c *memo.Context, s balanceSettings, u balanceUse) (problems []string) {
	if len(s.sources) == 0 || slices.Contains(s.sources, nobody) {
		return nil // everybody, or it is said already
	}
	if len(u.sources) > 0 && slices.Equal(bothSources(s.sources, u.sources), []netip.Prefix{nobody}) {
		return []string{"spec.sourceRanges: nobody is let in: no client is in these and in loadBalancerSourceRanges of " + u.owner.String() + ", too"}
	}
	out := t.vip.outcomes.Get(c, u.owner)
	if out == nil || len(out.addresses) == 0 {
		return nil
	}
	for _, a := range out.addresses {
		if !slices.ContainsFunc(s.sources, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }) {
			problems = append(problems, a.String())
		}
	}
	if len(problems) < len(out.addresses) {
		return nil
	}
	return []string{"spec.sourceRanges: nobody is let in: none is of the family of " + strings.Join(problems, ", ")}
}

// remarks are what is worth knowing of settings that can be, and may not be meant.
func (t *frontendTables) remarks(c *memo.Context, s balanceSettings, u balanceUse) (list []string) {
	say := func(path, remark string) { list = append(list, "spec."+path+": "+remark) }
	if u.proxies {
		return nil
	}
	if check := s.check; check != nil && check.Kind != model.CheckNone && check.Port == 0 && (check.Kind == model.CheckUDP) != (u.transport == model.UDP) {
		asks, takes := model.TCP, model.UDP
		if check.Kind == model.CheckUDP {
			asks, takes = takes, asks
		}
		say("healthCheck.type", cmp.Or(string(check.Kind), "HTTP")+" asks over "+string(asks)+", and port "+strconv.Itoa(int(u.port))+" is "+string(takes)+
			": backends must listen over both there, or the check name another port")
	}
	if deref(s.panics) > 0 {
		var all balanceSettings
		for _, anchor := range u.anchors {
			all, _ = all.under(t.settingsAt(c, anchor))
		}
		if all.checks(u.transport, false) == nil {
			say("panicThreshold", "there is no healthCheck, so that no backend is unhealthy")
		}
	}
	if fields := s.ofIPVS(); len(u.sources) > 0 && (len(fields) > 0 || s.plane == model.DataPlaneIPVS) {
		fields = append(fields, "spec.dataPlane IPVS")
		list = append(list, fields[0]+": loadBalancerSourceRanges of "+u.owner.Words()+" need XDP or NFTables: no machine balances by both")
	}
	if balancesByIPVS(s.scheduler) && s.hash != nil {
		say("hash", "scheduler "+s.scheduler+" of IPVS does not hash")
	}
	if out := t.vip.outcomes.Get(c, u.owner); out != nil && len(s.sources) > 0 {
		for _, a := range out.addresses {
			if !slices.ContainsFunc(s.sources, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }) {
				say("sourceRanges", "nobody is let in at "+a.String()+": no range is "+familyOf(a).String())
			}
		}
	}
	return append(list, t.weightRemarks(c, s, u)...)
}

// weightRemarks say which weights are of no backend, and that all are 0.
func (t *frontendTables) weightRemarks(c *memo.Context, s balanceSettings, u balanceUse) (list []string) {
	if len(s.weights) == 0 {
		return nil
	}
	backends := map[netip.Addr]bool{}
	for _, target := range u.sets {
		if target.Set == "" {
			continue
		}
		for _, b := range t.backend.backendsOf(c, target.Set) {
			backends[b.Address.Addr()] = true
		}
	}
	if len(backends) == 0 {
		return nil
	}
	var unknown []string
	for _, a := range slices.SortedFunc(maps.Keys(s.weights), netip.Addr.Compare) {
		if !backends[a] {
			unknown = append(unknown, a.String())
		}
	}
	if len(unknown) > 0 {
		list = append(list, "spec.weights: no backend has the address "+strings.Join(unknown, ", "))
	}
	for a := range backends {
		if w, said := s.weights[a]; !said || w > 0 {
			return list
		}
	}
	return append(list, "spec.weights: every backend has weight 0, so that none takes new flows")
}

// balanceUses are what a policy's target has; none says why there is nothing.
func (t *frontendTables) balanceUses(c *memo.Context, target policyAnchor, mode model.ForwardMode) (uses []balanceUse, none string) {
	n := snapshot.Name{Namespace: target.object.Namespace, Name: target.object.Name}
	portsOf := func(sets []model.Target) []servicePorts {
		if mode != model.ModeDSRIPIP && mode != model.ModeDSRL2 {
			return nil // nobody asks
		}
		return t.answersAt(c, sets)
	}
	switch snapshot.Kind(target.object.Kind) {
	case snapshot.KindService:
		if f := t.balanced.Get(c, n); f != nil {
			for _, p := range f.ports {
				if target.section == "" || target.section == p.name {
					sets := []model.Target{{Set: portKey{n, p.number, p.transport}.id()}}
					uses = append(uses, balanceUse{
						transport: p.transport, port: uint16(p.number), services: portsOf(sets), sets: sets, anchors: serviceAnchors(n, p.name), owner: serviceOwner(n), sources: f.sources,
					})
				}
			}
		}
	case snapshot.KindGateway:
		f := t.gateway.parents.Get(c, parentKey{snapshot.KindGateway, n})
		if f == nil {
			return nil, ""
		}
		if !f.own {
			return nil, target.object.String() + " has no addresses of its own, so nothing is balanced for it alone: give it an address (AddressPool)"
		}
		for i := range f.listeners {
			l := &f.listeners[i]
			if !l.serves() || target.section != "" && target.section != string(l.name) {
				continue
			}
			u := balanceUse{transport: l.transport(), port: uint16(l.port), proxies: !l.direct(), owner: gatewayOwner(n)}
			if l.direct() {
				var won *doorClaim
				if u.anchors, won = t.doorAnchors(c, n, gatewayDoor{l.transport(), uint16(l.port), parentKey{snapshot.KindGateway, n}, l.name}); won != nil {
					u.services, u.sets = portsOf(won.targets), won.targets
				}
			} else {
				u.anchors = []policyAnchor{balanceAnchor(gatewayOwner(n), l.name), balanceAnchor(gatewayOwner(n), "")}
			}
			uses = append(uses, u)
		}
	case snapshot.KindTCPRoute, snapshot.KindUDPRoute:
		f := t.route.streams.Get(c, target.object)
		if f == nil {
			return nil, ""
		}
		for _, d := range f.doors() {
			uses = append(uses, balanceUse{
				transport: d.transport, port: d.port, services: portsOf(d.targets), sets: d.targets, anchors: t.routeAnchors(c, target.object), owner: gatewayOwner(d.gateway),
			})
		}
		if len(uses) == 0 && slices.ContainsFunc(f.parents, func(p streamParent) bool { return len(p.names) > 0 }) {
			return nil, target.object.String() + " is served by proxies: the policy of a Gateway says how connections come to them"
		}
	}
	return uses, ""
}

// serviceAnchors are what may say how a port of a Service is balanced, the nearest first.
func serviceAnchors(n snapshot.Name, port string) (anchors []policyAnchor) {
	if port != "" {
		anchors = append(anchors, balanceAnchor(serviceOwner(n), gatewayv1.SectionName(port)))
	}
	return append(anchors, balanceAnchor(serviceOwner(n), ""))
}

// routeAnchors are those of a TCPRoute or UDPRoute.
func (t *frontendTables) routeAnchors(c *memo.Context, route model.Object) (anchors []policyAnchor) {
	if o := t.route.spec(c, snapshot.Kind(route.Kind), nameOf(route)); o != nil && len(o.rules) > 0 && o.rules[0] != "" {
		anchors = append(anchors, balanceAnchor(route, gatewayv1.SectionName(o.rules[0])))
	}
	return append(anchors, balanceAnchor(route, ""))
}

// doorAnchors are those of a TCP or UDP listener, with the route that has it.
func (t *frontendTables) doorAnchors(c *memo.Context, gateway snapshot.Name, d gatewayDoor) (anchors []policyAnchor, won *doorClaim) {
	if door := t.route.winners.Get(c, doorKey{gateway, d.transport, d.port}); door != nil {
		anchors, won = t.routeAnchors(c, door.route), door.claim
	}
	if d.bearer.kind == snapshot.KindGateway {
		anchors = append(anchors, balanceAnchor(gatewayOwner(gateway), d.section))
	}
	return append(anchors, balanceAnchor(gatewayOwner(gateway), "")), won
}
