package plane

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

func object(k snapshot.Key) model.Object {
	return model.Object{Kind: string(k.Kind), Namespace: k.Name.Namespace, Name: k.Name.Name}
}

// key is an object's key in a snapshot.
func key(o model.Object) snapshot.Key {
	return snapshot.Key{Kind: snapshot.Kind(o.Kind), Name: snapshot.Name{Namespace: o.Namespace, Name: o.Name}}
}

// live is the object as the API last showed it, nil when there is none or the plane writes no status of its kind.
func (l *loop) live(o model.Object) client.Object {
	if r, is := snapshot.ResourceOf(snapshot.Kind(o.Kind)); !is || r.Status == snapshot.StatusNone {
		return nil
	}
	return l.snapshot.Get(key(o))
}
