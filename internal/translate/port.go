package translate

import (
	"strings"

	"fairlead.dev/internal/model"
)

// At the machines' own addresses a port speaks one protocol. When some ask for HTTP there
// and others for HTTPS, the oldest decides, and the others' listener is not there.

func listenerNode(id model.ListenerID) node { return node{kind: nodeListener, a: string(id)} }

// twin is the listener at the same shared port that speaks the other protocol.
func twin(id model.ListenerID) (model.ListenerID, bool) {
	if id.Own() {
		return "", false
	}
	protocol := model.ProtocolHTTPS
	if isTLS(id) {
		protocol = model.ProtocolHTTP
	}
	return model.SharedListener(protocol, portOf(id)), true
}

// askPorts replaces what an owner asks for, who was created at the given second.
func (t *Translator) askPorts(owner model.Object, created int64, before, after []model.ListenerID) {
	changed := func(id model.ListenerID) {
		t.graph.mark(listenerNode(id))
		t.graph.changed(listenerNode(id))
		if other, shared := twin(id); shared && len(t.ports[other]) > 0 {
			t.graph.mark(listenerNode(other))
		}
	}
	stays := make(map[model.ListenerID]bool, len(after))
	for _, id := range after {
		stays[id] = true
		if old, asked := t.ports[id][owner]; asked && old == created {
			continue
		}
		if t.ports[id] == nil {
			t.ports[id] = map[model.Object]int64{}
		}
		t.ports[id][owner] = created
		changed(id)
	}
	for _, id := range before {
		if stays[id] {
			continue
		}
		delete(t.ports[id], owner)
		if len(t.ports[id]) == 0 {
			delete(t.ports, id)
		}
		changed(id)
	}
}

// settlePort notes whether the other protocol has the port of a listener that is asked for,
// and who decided so. It tells those that show it.
func (t *Translator) settlePort(n node, id model.ListenerID) (lost bool) {
	keeper := t.portKeeper(id)
	if before := t.lostPorts[id]; before != keeper {
		if keeper == (model.Object{}) {
			delete(t.lostPorts, id)
		} else {
			t.lostPorts[id] = keeper
		}
		t.graph.changed(n)
	}
	return keeper != (model.Object{})
}

// portKeeper is who has the port of a shared listener for the other protocol; the zero
// value when nobody has.
func (t *Translator) portKeeper(id model.ListenerID) model.Object {
	other, shared := twin(id)
	if !shared || len(t.ports[other]) == 0 || len(t.ports[id]) == 0 {
		return model.Object{}
	}
	oldest := func(id model.ListenerID) (first claim) {
		for owner, created := range t.ports[id] {
			if c := (claim{owner: owner, created: created}); first.owner.Kind == "" || c.older(&first) {
				first = c
			}
		}
		return first
	}
	mine, theirs := oldest(id), oldest(other)
	if mine.owner == theirs.owner && mine.created == theirs.created {
		if strings.Compare(string(id), string(other)) < 0 { // one IngressRoute that is served at both
			return model.Object{}
		}
		return theirs.owner
	}
	if theirs.older(&mine) {
		return theirs.owner
	}
	return model.Object{}
}

// lostPort says who has the port of a listener for the other protocol; empty when nobody has.
func (r reader) lostPort(id model.ListenerID) string {
	if id.Own() {
		return ""
	}
	r.t.graph.read(r.by, listenerNode(id))
	if keeper, lost := r.t.lostPorts[id]; lost {
		return keeper.String()
	}
	return ""
}
