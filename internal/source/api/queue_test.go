package apisource

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/snapshot"
)

func namespace(name, version string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, UID: "u"}}
}

func key(name string) snapshot.Key {
	return snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: name}}
}

func TestQueueKeepsOrderAndTheNewest(t *testing.T) {
	q := newQueue([]snapshot.Kind{snapshot.KindNamespace})
	q.put(snapshot.Change{Key: key("a"), Object: namespace("a", "1")}, snapshot.Change{Key: key("b"), Object: namespace("b", "1")})
	q.put(snapshot.Change{Key: key("a"), Object: namespace("a", "2")})
	q.put(snapshot.Change{Key: key("b")})
	b, err := q.next(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Changes) != 2 || b.Changes[0].Object.GetResourceVersion() != "2" || b.Changes[1].Object != nil || b.Changes[1].Key != key("b") {
		t.Fatalf("batch is %+v", b)
	}
	if b.Synced {
		t.Fatal("synced before the kind was listed")
	}
}

func TestQueueSaysSyncedOnceAndWithoutChangesToo(t *testing.T) {
	q := newQueue([]snapshot.Kind{snapshot.KindNamespace, snapshot.KindService})
	q.listed(snapshot.KindNamespace)
	if _, ok := q.drain(); ok {
		t.Fatal("a batch with nothing to say")
	}
	q.listed(snapshot.KindService)
	b, err := q.next(context.Background(), 0)
	if err != nil || !b.Synced || len(b.Changes) != 0 {
		t.Fatalf("batch %+v, error %v", b, err)
	}
	if _, ok := q.drain(); ok {
		t.Fatal("synced was said twice")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := q.next(ctx, 0); err == nil {
		t.Fatal("next returned although nothing came")
	}
}
