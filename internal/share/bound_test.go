package share

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestUsersHaveShares holds that one user takes a share only, that the bound of all holds, and that nothing is left of those who are gone.
func TestUsersHaveShares(t *testing.T) {
	b := New(5, 2)
	var held []func()
	try := func(name string, want Limit) {
		t.Helper()
		release, reached := b.Try(name)
		if reached != want || (release == nil) != (want != None) {
			t.Fatalf("%q: %d, want %d", name, reached, want)
		}
		if release != nil {
			held = append(held, release)
		}
	}
	for range 2 {
		try("anna", None)
	}
	try("anna", OfUser)
	try("bert", None)
	try("", None)
	try("", None) // 5 in all
	try("bert", OfAll)
	try("", OfAll)
	if b.Held() != 5 {
		t.Errorf("%d slots are held", b.Held())
	}
	held[0]()
	held = held[1:]
	try("carl", None)
	for _, release := range held {
		release()
	}
	if len(b.users) != 0 || b.Held() != 0 {
		t.Errorf("%d users and %d slots are left", len(b.users), b.Held())
	}
}

// TestWaitersAreInNobodysWay holds that one user's waiters, however many, leave slots to others.
func TestWaitersAreInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4, 2)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if release, _ := b.Wait(ctx, "anna"); release != nil {
					<-ctx.Done()
					release()
				}
			})
		}
		synctest.Wait()
		release, reached := b.Wait(ctx, "bert")
		if reached != None {
			t.Fatalf("bert: %d", reached)
		}
		release()
		short, end := context.WithTimeout(ctx, time.Second)
		defer end()
		if _, reached := b.Wait(short, "anna"); reached != OfUser {
			t.Errorf("anna: %d", reached)
		}
		cancel()
		all.Wait()
		if len(b.users) != 0 || b.Held() != 0 {
			t.Errorf("%d users and %d slots are left", len(b.users), b.Held())
		}
	})
}
