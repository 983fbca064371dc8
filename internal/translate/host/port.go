package host

import (
	"strings"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/input"
)

// At the machines' own addresses a port speaks one protocol. When some ask for HTTP there
// and others for HTTPS, the oldest decides, and the others' listener is not there.

// twin is the listener at the same shared port that speaks the other protocol.
func twin(id model.ListenerID) (model.ListenerID, bool) {
	if id.Own() {
		return "", false
	}
	protocol := model.ProtocolHTTPS
	if input.IsTLS(id) {
		protocol = model.ProtocolHTTP
	}
	return model.SharedListener(protocol, input.PortOf(id)), true
}

// portKeeper is who has the port of a shared listener for the other protocol; none when nobody has.
func (t *Tables) portKeeper(c *memo.Context, id model.ListenerID) (model.Object, bool) {
	other, shared := twin(id)
	if !shared {
		return model.Object{}, false
	}
	asking, theirs := t.Ports.Get(c, id), t.Ports.Get(c, other)
	if asking.Len() == 0 || theirs.Len() == 0 {
		return model.Object{}, false
	}
	mine, first := oldestAsking(asking), oldestAsking(theirs)
	if mine.Owner == first.Owner && mine.Created == first.Created {
		// One IngressRoute that is served at both.
		return first.Owner, strings.Compare(string(id), string(other)) >= 0
	}
	return first.Owner, first.Older(&mine)
}

func oldestAsking(asking memo.Parts[model.Object, int64]) (first Candidate) {
	for owner, created := range asking.All() {
		if c := (Candidate{Owner: owner, Created: created}); first.Owner.Kind == "" || c.Older(&first) {
			first = c
		}
	}
	return first
}

// LostPort says who has the port of a listener for the other protocol; empty when nobody has.
func (t *Tables) LostPort(c *memo.Context, id model.ListenerID) string {
	if id.Own() {
		return ""
	}
	if keeper, lost := t.PortKeepers.Find(c, id); lost {
		return keeper.String()
	}
	return ""
}
