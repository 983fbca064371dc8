package plane

import (
	"context"
	"slices"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// batches has the source's batches of changes until ctx is done.
func (l *loop) batches(ctx context.Context) <-chan snapshot.Batch {
	batches := make(chan snapshot.Batch)
	go func() {
		for {
			b, err := l.plane.discovery.Next(ctx)
			if err != nil {
				return // ctx is done
			}
			select {
			case batches <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	return batches
}

// receive puts a batch of changes into the snapshot, and returns the keys to translate: none before
// every resource of the API is read.
func (l *loop) receive(b snapshot.Batch) []snapshot.Key {
	keys := make([]snapshot.Key, 0, len(b.Changes))
	for _, c := range b.Changes {
		keys = append(keys, l.set(c))
	}
	l.plane.metrics.changes.Add(float64(len(keys)))
	if l.synced {
		return keys
	}
	l.backlog = append(l.backlog, keys...)
	if !b.Synced {
		return nil
	}
	l.synced = true
	l.plane.machines.know()
	l.snapshot.Now = l.plane.config.Now().UTC().Truncate(validityBeat)
	l.followOwn()
	keys, l.backlog = append(l.backlog, snapshot.Key{Kind: snapshot.KindTime}, snapshot.Key{Kind: snapshot.KindOwn}), nil
	l.plane.config.Log.Info("every resource of the API is read", "objects", len(keys))
	return keys
}

// set puts one change into the snapshot.
func (l *loop) set(c snapshot.Change) snapshot.Key {
	if c.Object == nil {
		l.snapshot.Delete(c.Key)
		l.plane.writer.Forget(object(c.Key))
		if c.Key.Kind == snapshot.KindGateway {
			l.plane.derived.Forget(infrastructureAccount(c.Key.Name))
		}
	} else if _, err := l.snapshot.Set(c.Object); err != nil {
		l.plane.config.Log.Error("a bug: the source knows more kinds than the snapshot", "error", err)
	}
	if c.Key.Kind == snapshot.KindUpstream {
		l.plane.upstreams.changed.note(c.Key.Name.Name) // what it should show may have been said before it came
	}
	if c.Key.Kind == snapshot.KindMachine {
		m, _ := c.Object.(*v1alpha1.Machine)
		l.plane.machines.set(c.Key.Name.Name, m)
	}
	return c.Key
}

// followOwn notes where this process takes calls, and says whether that has changed.
func (l *loop) followOwn() bool {
	own := l.plane.ownEndpoints()
	if slices.Equal(own.Agents, l.snapshot.Own.Agents) && slices.Equal(own.API, l.snapshot.Own.API) {
		return false
	}
	l.snapshot.Own = own
	return true
}
