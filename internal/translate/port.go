package translate

import (
	"strings"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
)

// At the machines' own addresses a port speaks one protocol. When some ask for HTTP there
// and others for HTTPS, the oldest decides, and the others' listener is not there.

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

// portKeeper is who has the port of a shared listener for the other protocol; none when nobody has.
func (t *hostTables) portKeeper(c *memo.Context, id model.ListenerID) (model.Object, bool) {
	other, shared := twin(id)
	if !shared {
		return model.Object{}, false
	}
	asking, theirs := t.ports.Get(c, id), t.ports.Get(c, other)
	if asking.Len() == 0 || theirs.Len() == 0 {
		return model.Object{}, false
	}
	mine, first := oldestAsking(asking), oldestAsking(theirs)
	if mine.owner == first.owner && mine.created == first.created {
		// One IngressRoute that is served at both.
		return first.owner, strings.Compare(string(id), string(other)) >= 0
	}
	return first.owner, first.older(&mine)
}

func oldestAsking(asking memo.Parts[model.Object, int64]) (first claim) {
	for owner, created := range asking.All() {
		if c := (claim{owner: owner, created: created}); first.owner.Kind == "" || c.older(&first) {
			first = c
		}
	}
	return first
}

// lostPort says who has the port of a listener for the other protocol; empty when nobody has.
func (t *hostTables) lostPort(c *memo.Context, id model.ListenerID) string {
	if id.Own() {
		return ""
	}
	if keeper, lost := t.portKeepers.Find(c, id); lost {
		return keeper.String()
	}
	return ""
}
