package listener

import (
	"slices"
	"strings"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/target"
	"fairlead.dev/internal/translate/vip"
)

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Targets      *target.Tables
	Certificates *certificate.Tables
	Backend      *backend.Tables
	Policy       *policy.Tables
	VIP          *vip.Tables
	Host         *host.Tables
	Gateway      *gateway.Tables
}

// Tables are the listeners of the model, how clients are treated there, and the views of machines on them.
type Tables struct {
	in   *input.Tables
	from Rooms

	Listeners *memo.Table[model.ListenerID, *model.Listener]
	shared    *memo.Sum[memo.Unit, model.ListenerID, struct{}, memo.Parts[model.ListenerID, struct{}]] // at the machines' own addresses
	Views     *memo.Table[model.ViewID, *model.View]
}

// New adds the tables of listeners and views to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.shared = memo.NewSum[memo.Unit, model.ListenerID, struct{}](g, "shared listeners")
	t.Listeners = memo.For(memo.NewTable(g, "listener", t.makeListener,
		memo.Reads(t.from.Host.PortKeepers, t.from.VIP.Outcomes, t.from.Gateway.Gateways), t.ReadsOfClients(),
		memo.Puts(t.from.Certificates.AuthorityUses, t.from.Backend.GroupUses, t.shared)), t.from.Host.Ports).Watch()
	t.Views = memo.Always(memo.ForKey(memo.NewTable(g, "view", t.makeView, memo.Reads(t.Listeners, t.shared, t.from.VIP.LeadsTo)), t.from.VIP.LeadsTo, model.PoolView), model.SharedView).Watch()
	return t
}

// ReadsOfClients declares what clients and ListenerPolicies read.
func (t *Tables) ReadsOfClients() memo.Option {
	return memo.Reads(t.from.Targets.Classes, t.from.Targets.Slots, t.from.Gateway.Classes, t.from.Gateway.Parents, t.from.Host.Ports, t.from.Policy.Clients)
}

// makeListener makes the listener that somebody asks for. That of a Gateway with addresses of its own is
// at those; before there is one, there is no listener.
func (t *Tables) makeListener(c *memo.Context, id model.ListenerID) (*model.Listener, bool) {
	if _, lost := t.from.Host.PortKeepers.Find(c, id); lost {
		return nil, false
	}
	l := &model.Listener{ID: id, Port: input.PortOf(id), Protocol: input.ProtocolOf(id)}
	by := certificate.User{Kind: "listener", Host: model.HostKey{Listener: id}}
	if gateway, own := input.GatewayOfListener(id); own {
		out, f := t.from.VIP.Outcomes.Get(c, input.Object(snapshot.KindGateway, gateway)), t.from.Gateway.Gateways.Get(c, gateway)
		if out == nil || f == nil || len(out.Addresses) == 0 {
			return nil, false
		}
		l.Addresses = out.Addresses
		if l.Protocol == model.ProtocolHTTPS {
			l.ClientValidation = f.Validation(int32(l.Port))
		}
	} else {
		t.shared.Put(c, memo.Unit{}, id, struct{}{})
	}
	var groups []model.BackendGroup
	l.Clients, groups = t.clients(c, id, l.Protocol)
	t.from.Backend.UseGroups(c, groups, by)
	if v := l.ClientValidation; v != nil {
		for _, authority := range v.Authorities {
			t.from.Certificates.AuthorityUses.Put(c, authority, by, struct{}{})
		}
	}
	return l, true
}

// A machine sees the listeners that VIPs of its pools lead to, and what all edges share at their own
// addresses unless a pool has chosen it: spec.machines is set, and takes it, whether or not maxMachines does.

// makeView lists a view's listeners. That of a pool is there while it has any.
func (t *Tables) makeView(c *memo.Context, id model.ViewID) (*model.View, bool) {
	view := &model.View{ID: id}
	if id == model.SharedView {
		view.Listeners = slices.AppendSeq(view.Listeners, t.shared.Get(c, memo.Unit{}).Keys())
	} else {
		for listener := range t.from.VIP.LeadsTo.Get(c, strings.TrimPrefix(string(id), string(model.PoolView("")))) {
			if t.Listeners.Get(c, listener) != nil {
				view.Listeners = append(view.Listeners, listener)
			}
		}
	}
	slices.Sort(view.Listeners)
	return view, len(view.Listeners) > 0 || id == model.SharedView
}
