package translate

import (
	"slices"
	"strings"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// listenerTables are the listeners of the model, how clients are treated there, and the views of machines on them.
type listenerTables struct {
	in      *inputTables
	anchor  *anchorTables
	tls     *tlsTables
	backend *backendTables
	policy  *policyTables
	vip     *vipTables
	host    *hostTables
	gateway *gatewayTables

	listeners *memo.Table[model.ListenerID, *model.Listener]
	shared    *memo.Sum[memo.Unit, model.ListenerID, struct{}, memo.Parts[model.ListenerID, struct{}]] // at the machines' own addresses
	views     *memo.Table[model.ViewID, *model.View]
}

func newListenerTables(g *memo.Graph, in *inputTables, anchor *anchorTables, tls *tlsTables, backend *backendTables, policy *policyTables, vip *vipTables, host *hostTables, gateway *gatewayTables) *listenerTables {
	t := &listenerTables{in: in, anchor: anchor, tls: tls, backend: backend, policy: policy, vip: vip, host: host, gateway: gateway}
	t.shared = memo.NewSum[memo.Unit, model.ListenerID, struct{}](g, "shared listeners")
	t.listeners = memo.For(memo.NewTable(g, "listener", t.makeListener,
		memo.Reads(host.portKeepers, vip.outcomes, gateway.gateways), t.readsOfClients(),
		memo.Puts(tls.authorityUses, backend.groupUses, t.shared)), host.ports).Watch()
	t.views = memo.Always(memo.ForKey(memo.NewTable(g, "view", t.makeView, memo.Reads(t.listeners, t.shared, vip.leadsTo)), vip.leadsTo, model.PoolView), model.SharedView).Watch()
	return t
}

// readsOfClients declares what clients and listenerPolicies read.
func (t *listenerTables) readsOfClients() memo.Option {
	return memo.Reads(t.anchor.classes, t.anchor.slots, t.gateway.classes, t.gateway.parents, t.host.ports, t.policy.clients)
}

// makeListener makes the listener that somebody asks for. That of a Gateway with addresses of its own is
// at those; before there is one, there is no listener.
func (t *listenerTables) makeListener(c *memo.Context, id model.ListenerID) (*model.Listener, bool) {
	if _, lost := t.host.portKeepers.Find(c, id); lost {
		return nil, false
	}
	l := &model.Listener{ID: id, Port: portOf(id), Protocol: protocolOf(id)}
	by := user{kind: "listener", host: model.HostKey{Listener: id}}
	if gateway, own := gatewayOfListener(id); own {
		out, f := t.vip.outcomes.Get(c, gatewayOwner(gateway)), t.gateway.gateways.Get(c, gateway)
		if out == nil || f == nil || len(out.addresses) == 0 {
			return nil, false
		}
		l.Addresses = out.addresses
		if l.Protocol == model.ProtocolHTTPS {
			l.ClientValidation = f.validation(int32(l.Port))
		}
	} else {
		t.shared.Put(c, memo.Unit{}, id, struct{}{})
	}
	var groups []model.BackendGroup
	l.Clients, groups = t.clients(c, id, l.Protocol)
	t.backend.useGroups(c, groups, by)
	if v := l.ClientValidation; v != nil {
		for _, authority := range v.Authorities {
			t.tls.authorityUses.Put(c, authority, by, struct{}{})
		}
	}
	return l, true
}

// gatewayOfListener is the Gateway whose own a listener is.
func gatewayOfListener(id model.ListenerID) (snapshot.Name, bool) {
	_, rest, own := strings.Cut(string(id), "_")
	namespace, name, _ := strings.Cut(rest, "_")
	return snapshot.Name{Namespace: namespace, Name: name}, own
}

// A machine sees the listeners that VIPs of its pools lead to, and what all edges share at their own
// addresses unless a pool has chosen it: spec.machines is set, and takes it, whether or not maxMachines does.

// makeView lists a view's listeners. That of a pool is there while it has any.
func (t *listenerTables) makeView(c *memo.Context, id model.ViewID) (*model.View, bool) {
	view := &model.View{ID: id}
	if id == model.SharedView {
		view.Listeners = slices.AppendSeq(view.Listeners, t.shared.Get(c, memo.Unit{}).Keys())
	} else {
		for listener := range t.vip.leadsTo.Get(c, strings.TrimPrefix(string(id), string(model.PoolView("")))) {
			if t.listeners.Get(c, listener) != nil {
				view.Listeners = append(view.Listeners, listener)
			}
		}
	}
	slices.Sort(view.Listeners)
	return view, len(view.Listeners) > 0 || id == model.SharedView
}
