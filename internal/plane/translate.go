package plane

import (
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// translate translates the snapshot after changes of these keys.
func (l *loop) translate(keys []snapshot.Key) translate.Changes {
	changes := l.translator.Apply(l.snapshot, keys)
	l.remember(changes)
	l.tellOfOthers()
	return changes
}

// remember keeps the settings of BGPPeers that are in force for the translations after this one: a bad
// edit falls back to them, also one that comes before the status is written.
func (l *loop) remember(ch translate.Changes) {
	for o, s := range ch.Statuses {
		if s != nil && s.BGPPeer != nil && s.BGPPeer.InForce != nil {
			l.snapshot.PeersInForce[snapshot.Name{Name: o.Name}] = s.BGPPeer.InForce
		}
	}
}

// tellOfOthers says once that there are IngressRoutes that nobody of ours serves: they have no status.
func (l *loop) tellOfOthers() {
	if n := l.translator.OfOthers(); n > 0 && !l.toldOf {
		l.toldOf = true
		l.plane.config.Log.Info("IngressRoutes of other classes are not ours (--ingress-class)", "count", n)
	}
}
