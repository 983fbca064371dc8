package plane

import (
	"reflect"
	"slices"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// translate translates the snapshot after changes of these keys.
func (l *loop) translate(keys []snapshot.Key) translate.Changes {
	changes := l.translator.Apply(l.snapshot, slices.Concat(keys, l.inForce))
	l.inForce = l.remember(changes)
	l.tellOfOthers()
	return changes
}

// remember puts the settings of BGPPeers that are in force into the snapshot, and returns the keys that changed. The
// next translation falls back to these settings after a bad edit, also before the status is written.
func (l *loop) remember(ch translate.Changes) (changed []snapshot.Key) {
	for o, s := range ch.Statuses {
		if s == nil || s.BGPPeer == nil || s.BGPPeer.InForce == nil {
			continue
		}
		k := snapshot.Key{Kind: snapshot.KindBGPPeer, Name: snapshot.Name{Name: o.Name}}
		if !reflect.DeepEqual(l.snapshot.PeersInForce[k.Name], s.BGPPeer.InForce) {
			l.snapshot.PeersInForce[k.Name] = s.BGPPeer.InForce
			changed = append(changed, k)
		}
	}
	return changed
}

// tellOfOthers says once that there are IngressRoutes that nobody of ours serves: they have no status.
func (l *loop) tellOfOthers() {
	if l.toldOf {
		return
	}
	if n := l.translator.CountOthers(); n > 0 {
		l.toldOf = true
		l.plane.config.Log.Info("IngressRoutes of other classes are not ours (--ingress-class)", "count", n)
	}
}
