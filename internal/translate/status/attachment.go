package status

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
)

// attachment is a route at one listener of a Gateway or ListenerSet that counts it.
type attachment struct {
	route   model.Object
	section gatewayv1.SectionName
}

// attachedRoutes are how many routes each listener counts.
type attachedRoutes map[gatewayv1.SectionName]int32

func (a *attachedRoutes) fold(by attachment, before, after *struct{}) {
	if *a == nil {
		*a = attachedRoutes{}
	}
	if before == nil {
		(*a)[by.section]++
	}
	if after == nil {
		(*a)[by.section]--
	}
	if (*a)[by.section] == 0 {
		delete(*a, by.section)
	}
}

// attachments are the listeners that count a route.
type attachments map[gateway.ParentKey][]gatewayv1.SectionName

func (a *attachments) add(p *gateway.RouteParent) {
	if *a == nil {
		*a = attachments{}
	}
	for _, section := range p.Sections {
		if !slices.Contains((*a)[p.Parent], section) { // two parentRefs may lead to one listener
			(*a)[p.Parent] = append((*a)[p.Parent], section)
		}
	}
}

// serviceUse is a route that sends requests to a Service through a Gateway.
type serviceUse struct {
	route   model.Object
	gateway snapshot.Name
}

func foldUse(gateways *host.Tally[snapshot.Name], by serviceUse, before, after *struct{}) {
	if before == nil {
		gateways.Add(by.gateway, 1)
	}
	if after == nil {
		gateways.Add(by.gateway, -1)
	}
}

// serviceUses are the Services that a route sends requests to, with the Gateways through which it does.
type serviceUses map[snapshot.Name][]snapshot.Name

func (u *serviceUses) add(p *gateway.RouteParent, services []snapshot.Name) {
	if *u == nil {
		*u = serviceUses{}
	}
	for _, service := range services {
		if !slices.Contains((*u)[service], p.Gateway) {
			(*u)[service] = append((*u)[service], p.Gateway)
		}
	}
}

// count counts a route at the listeners that it attached to, and at the Services that it uses.
func (t *Tables) count(c *memo.Context, route model.Object, counted attachments, uses serviceUses) {
	for parent, sections := range counted {
		for _, section := range sections {
			t.attached.Put(c, parent, attachment{route, section}, struct{}{})
		}
	}
	for service, gateways := range uses {
		for _, gateway := range gateways {
			t.uses.Put(c, service, serviceUse{route, gateway}, struct{}{})
		}
	}
}

// usersOf are the Gateways whose routes use a Service; the Service itself when only
// others do.
func (t *Tables) usersOf(c *memo.Context, service snapshot.Name) ([]model.Object, bool) {
	var users []model.Object
	gateways := t.uses.Get(c, service)
	for gateway := range gateways.Keys() {
		users = append(users, input.Object(snapshot.KindGateway, gateway))
	}
	slices.SortFunc(users, model.Object.Compare)
	if len(users) == 0 && t.from.Backend.Reached(c, service) {
		users = append(users, input.Object(snapshot.KindService, service))
	}
	return users, len(users) > 0
}
