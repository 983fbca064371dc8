package explain

import (
	"cmp"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
)

// enter finds the listener that takes the connection. The one that is bound to the address
// goes before that of all addresses. Without an address asked for, the listener at the port
// counts that knows the host best; the others are named.
func (x *explainer) enter() *model.Listener {
	vip, protocol := x.request.VIP, model.ProtocolHTTP
	if x.request.Scheme == "https" {
		protocol = model.ProtocolHTTPS
	}
	var bound, shared []model.Listener
	for _, l := range x.world.Listeners {
		switch {
		case l.Port != x.request.Port:
		case len(l.Addresses) == 0:
			shared = append(shared, l)
		case !vip.IsValid() || slices.Contains(l.Addresses, vip):
			bound = append(bound, l)
		}
	}
	if vip.IsValid() {
		if len(bound) > 0 {
			return &bound[0]
		}
		if len(shared) > 0 {
			return &shared[0]
		}
		return nil
	}
	all := append(shared, bound...)
	if len(all) == 0 {
		return nil
	}
	name := strings.ToLower(stripPort(stripDot(x.request.Host)))
	rank := func(l model.Listener) (wrong, at int) {
		if l.Protocol != protocol {
			wrong = 1
		}
		names := candidates(name)
		at = slices.IndexFunc(names, func(host string) bool {
			k := model.HostKey{Listener: l.ID, Host: host}
			return x.world.VirtualHost(k) != nil || x.world.TLSHost != nil && x.world.TLSHost(k) != nil
		})
		if at < 0 {
			at = len(names)
		}
		return wrong, at
	}
	slices.SortStableFunc(all, func(a, b model.Listener) int {
		wrongA, atA := rank(a)
		wrongB, atB := rank(b)
		return cmp.Or(cmp.Compare(wrongA, wrongB), cmp.Compare(atA, atB))
	})
	for _, l := range all[1:min(len(all), 1+maxAlso)] {
		x.others = append(x.others, l.ID)
	}
	return &all[0]
}

// listener notes who takes the connection.
func (x *explainer) listener(found *model.Listener) {
	l := Listener{Listener: *found, Machines: x.world.Serving(found.ID), Others: x.others, Notes: clientNotes(found.Clients)}
	if x.world.ListenerBy != nil {
		l.By, l.ByMore = firstSources(x.world.ListenerBy(l.ID))
		for i, by := range l.By {
			l.By[i] = x.place(by)
			if by.Kind == "Gateway" || by.Kind == "ListenerSet" { // what is wrong with one of many roots concerns its host only
				x.concern(by.Object)
			}
		}
	}
	if x.world.ClientsBy != nil {
		for _, by := range x.world.ClientsBy(l.ID) {
			l.ClientsBy = append(l.ClientsBy, x.source(by))
		}
	}
	if len(l.Others) > 0 {
		l.Notes = append(l.Notes, "it has the most specific hostname of the listeners at port "+x.port()+"; the address that the client connects to decides (--vip)")
	}
	x.e.Listener = &l
}
