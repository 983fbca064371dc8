package frontend

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/route"
	"fairlead.dev/internal/translate/target"
)

// answersAt are the ports at which the backends of sets answer.
func (t *Tables) answersAt(c *memo.Context, sets []model.Target) []policy.ServicePorts {
	var list []policy.ServicePorts
	for _, target := range sets {
		if target.Set == "" {
			continue
		}
		ports := map[uint16]bool{}
		for _, b := range t.from.Backend.BackendsOf(c, target.Set) {
			ports[b.Address.Port()] = true
		}
		list = append(list, policy.ServicePorts{Set: target.Set, Ports: slices.Sorted(maps.Keys(ports))})
	}
	return list
}

// JudgeBalancing says why a LoadBalancerPolicy does not hold for a target, or what is worth
// knowing of it if it does.
func (t *Tables) JudgeBalancing(c *memo.Context, policyName snapshot.Name, target target.Ref) (problem, note string) {
	f := t.from.Policy.Balance.Get(c, policyName)
	uses, none := t.balanceUses(c, target, f.Settings.Mode)
	if none != "" {
		return none, ""
	}
	counts, locked, remarks := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, u := range uses {
		var nearer policy.BalanceSettings
		for _, anchor := range u.Anchors {
			if anchor == target {
				break
			}
			nearer, _ = nearer.Under(t.settingsAt(c, anchor))
		}
		fitted, problems := f.Settings.Fit(u)
		_, unfit := nearer.Under(fitted)
		problems = append(problems, unfit...)
		if nearer.Sources == nil {
			for _, p := range t.lockedOut(c, f.Settings, u) {
				locked[p]++
			}
		}
		for _, p := range problems {
			counts[p]++
		}
		for _, remark := range t.remarks(c, f.Settings, u) {
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
	if f.Settings.Plane == "" {
		note += f.Settings.NeedsIPVS()
	}
	for _, remark := range slices.Sorted(maps.Keys(remarks)) {
		note += "; " + remark
	}
	return strings.Join(everywhere, "; "), note
}

// settingsAt are what the policy says that holds at an anchor.
func (t *Tables) settingsAt(c *memo.Context, anchor target.Ref) (s policy.BalanceSettings) {
	if p := t.from.Targets.Holder(c, anchor); !p.None() {
		if f := t.from.Policy.Balance.Get(c, p.Name); f != nil {
			s = f.Settings
		}
	}
	return s
}

// lockedOut says where source ranges let nobody in at all. They hold all the same.
func (t *Tables) lockedOut(c *memo.Context, s policy.BalanceSettings, u policy.BalanceUse) (problems []string) {
	if len(s.Sources) == 0 || slices.Contains(s.Sources, address.Nobody) {
		return nil // everybody, or it is said already
	}
	if len(u.Sources) > 0 && slices.Equal(address.BothSources(s.Sources, u.Sources), []netip.Prefix{address.Nobody}) {
		return []string{"spec.sourceRanges: no client is admitted: no address is in these and in the loadBalancerSourceRanges of " + u.Owner.String()}
	}
	out := t.from.VIP.Outcomes.Get(c, u.Owner)
	if out == nil || len(out.Addresses) == 0 {
		return nil
	}
	for _, a := range out.Addresses {
		if !slices.ContainsFunc(s.Sources, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }) {
			problems = append(problems, a.String())
		}
	}
	if len(problems) < len(out.Addresses) {
		return nil
	}
	return []string{"spec.sourceRanges: no client is admitted: no range has the address family of " + strings.Join(problems, ", ")}
}

// remarks are what is worth knowing of settings that can be, and may not be meant.
func (t *Tables) remarks(c *memo.Context, s policy.BalanceSettings, u policy.BalanceUse) (list []string) {
	say := func(path, remark string) { list = append(list, "spec."+path+": "+remark) }
	if u.Proxies {
		return nil
	}
	if check := s.Check; check != nil && check.Kind != model.CheckNone && check.Port == 0 && (check.Kind == model.CheckUDP) != (u.Transport == model.UDP) {
		asks, takes := model.TCP, model.UDP
		if check.Kind == model.CheckUDP {
			asks, takes = takes, asks
		}
		say("healthCheck.type", cmp.Or(string(check.Kind), "HTTP")+" checks over "+string(asks)+", and port "+strconv.Itoa(int(u.Port))+" is "+string(takes)+
			": backends must listen on both, or the check needs another port")
	}
	if field.Deref(s.Panics) > 0 {
		var all policy.BalanceSettings
		for _, anchor := range u.Anchors {
			all, _ = all.Under(t.settingsAt(c, anchor))
		}
		if all.Checks(u.Transport, false) == nil {
			say("panicThreshold", "there is no healthCheck, so that no backend is unhealthy")
		}
	}
	if fields := s.OfIPVS(); len(u.Sources) > 0 && (len(fields) > 0 || s.Plane == model.DataPlaneIPVS) {
		fields = append(fields, "spec.dataPlane IPVS")
		list = append(list, fields[0]+": loadBalancerSourceRanges of "+u.Owner.Describe()+" need XDP or NFTables: a frontend has one data plane")
	}
	if policy.BalancesByIPVS(s.Scheduler) && s.Hash != nil {
		say("hash", "scheduler "+s.Scheduler+" of IPVS does not hash")
	}
	if out := t.from.VIP.Outcomes.Get(c, u.Owner); out != nil && len(s.Sources) > 0 {
		for _, a := range out.Addresses {
			if !slices.ContainsFunc(s.Sources, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }) {
				say("sourceRanges", "every client is refused at "+a.String()+": no range is "+address.FamilyOf(a).String())
			}
		}
	}
	return append(list, t.weightRemarks(c, s, u)...)
}

// weightRemarks say which weights are of no backend, and that all are 0.
func (t *Tables) weightRemarks(c *memo.Context, s policy.BalanceSettings, u policy.BalanceUse) (list []string) {
	if len(s.Weights) == 0 {
		return nil
	}
	backends := map[netip.Addr]bool{}
	for _, target := range u.Sets {
		if target.Set == "" {
			continue
		}
		for _, b := range t.from.Backend.BackendsOf(c, target.Set) {
			backends[b.Address.Addr()] = true
		}
	}
	if len(backends) == 0 {
		return nil
	}
	var unknown []string
	for _, a := range slices.SortedFunc(maps.Keys(s.Weights), netip.Addr.Compare) {
		if !backends[a] {
			unknown = append(unknown, a.String())
		}
	}
	if len(unknown) > 0 {
		list = append(list, "spec.weights: no backend has the address "+strings.Join(unknown, ", "))
	}
	for a := range backends {
		if w, said := s.Weights[a]; !said || w > 0 {
			return list
		}
	}
	return append(list, "spec.weights: every backend has weight 0, so that none takes new flows")
}

// balanceUses are what a policy's target has; none says why there is nothing.
func (t *Tables) balanceUses(c *memo.Context, ref target.Ref, mode model.ForwardMode) (uses []policy.BalanceUse, none string) {
	n := input.NameOf(ref.Object)
	portsOf := func(sets []model.Target) []policy.ServicePorts {
		if mode != model.ModeDSRIPIP && mode != model.ModeDSRL2 {
			return nil // nobody asks
		}
		return t.answersAt(c, sets)
	}
	switch snapshot.Kind(ref.Object.Kind) {
	case snapshot.KindService:
		if f := t.Balanced.Get(c, n); f != nil {
			for _, p := range f.Ports {
				if ref.Section == "" || ref.Section == p.name {
					sets := []model.Target{{Set: backend.PortKey{Service: n, Number: p.Number, Transport: p.Transport}.ID()}}
					uses = append(uses, policy.BalanceUse{
						Transport: p.Transport, Port: uint16(p.Number), Services: portsOf(sets), Sets: sets, Anchors: serviceAnchors(n, p.name), Owner: input.Object(snapshot.KindService, n), Sources: f.Sources,
					})
				}
			}
		}
	case snapshot.KindGateway:
		f := t.from.Gateway.Parents.Get(c, gateway.ParentKey{Kind: snapshot.KindGateway, Name: n})
		if f == nil {
			return nil, ""
		}
		if !f.Own {
			return nil, ref.Object.String() + " has no address of its own, so it has no frontends: give it an address (AddressPool)"
		}
		for i := range f.Listeners {
			l := &f.Listeners[i]
			if !l.Serves() || ref.Section != "" && ref.Section != string(l.Name) {
				continue
			}
			u := policy.BalanceUse{Transport: l.Transport(), Port: uint16(l.Port), Proxies: !l.Direct(), Owner: input.Object(snapshot.KindGateway, n)}
			if l.Direct() {
				var won *route.PortCandidate
				if u.Anchors, won = t.directAnchors(c, n, gateway.DirectListener{Transport: l.Transport(), Port: uint16(l.Port), Bearer: gateway.ParentKey{Kind: snapshot.KindGateway, Name: n}, Section: l.Name}); won != nil {
					u.Services, u.Sets = portsOf(won.Targets), won.Targets
				}
			} else {
				u.Anchors = []target.Ref{policy.BalanceAnchor(input.Object(snapshot.KindGateway, n), l.Name), policy.BalanceAnchor(input.Object(snapshot.KindGateway, n), "")}
			}
			uses = append(uses, u)
		}
	case snapshot.KindTCPRoute, snapshot.KindUDPRoute:
		f := t.from.Route.Streams.Get(c, ref.Object)
		if f == nil {
			return nil, ""
		}
		for _, d := range f.Direct() {
			uses = append(uses, policy.BalanceUse{
				Transport: d.Transport, Port: d.Port, Services: portsOf(d.Targets), Sets: d.Targets, Anchors: t.routeAnchors(c, ref.Object), Owner: input.Object(snapshot.KindGateway, d.Gateway),
			})
		}
		if len(uses) == 0 && slices.ContainsFunc(f.Parents, func(p route.StreamParent) bool { return len(p.Names) > 0 }) {
			return nil, ref.Object.String() + " is served by proxies: the policy of a Gateway says how connections come to them"
		}
	}
	return uses, ""
}

// serviceAnchors are what may say how a port of a Service is balanced, the nearest first.
func serviceAnchors(n snapshot.Name, port string) (anchors []target.Ref) {
	if port != "" {
		anchors = append(anchors, policy.BalanceAnchor(input.Object(snapshot.KindService, n), gatewayv1.SectionName(port)))
	}
	return append(anchors, policy.BalanceAnchor(input.Object(snapshot.KindService, n), ""))
}

// routeAnchors are those of a TCPRoute or UDPRoute.
func (t *Tables) routeAnchors(c *memo.Context, route model.Object) (anchors []target.Ref) {
	if o := t.from.Route.Spec(c, snapshot.Kind(route.Kind), input.NameOf(route)); o != nil && len(o.Rules) > 0 && o.Rules[0] != "" {
		anchors = append(anchors, policy.BalanceAnchor(route, gatewayv1.SectionName(o.Rules[0])))
	}
	return append(anchors, policy.BalanceAnchor(route, ""))
}

// directAnchors are those of a TCP or UDP listener, with the route that has it.
func (t *Tables) directAnchors(c *memo.Context, gateway snapshot.Name, d gateway.DirectListener) (anchors []target.Ref, won *route.PortCandidate) {
	if direct := t.from.Route.Winners.Get(c, route.PortKey{Gateway: gateway, Transport: d.Transport, Port: d.Port}); direct != nil {
		anchors, won = t.routeAnchors(c, direct.Route), direct.Candidate
	}
	if d.Bearer.Kind == snapshot.KindGateway {
		anchors = append(anchors, policy.BalanceAnchor(input.Object(snapshot.KindGateway, gateway), d.Section))
	}
	return append(anchors, policy.BalanceAnchor(input.Object(snapshot.KindGateway, gateway), "")), won
}
