package apisource

import (
	"testing"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// TestObjectsThatCannotBeRead holds that one object of a type that no version has, as an API keeps it that had an older
// definition, hides no other one: it is as it was before, or left out, and named until it can be read or is gone.
func TestObjectsThatCannotBeRead(t *testing.T) {
	api, cfg := newFakeAPI(t)
	api.with(func() { api.spoilt = map[string]bool{"old": true} })
	api.change("a", &v1alpha1.MachineSpec{}, true)
	api.change("old", &v1alpha1.MachineSpec{}, true)
	v := follow(t, cfg)
	v.until("synced", func() bool { return v.synced })
	v.expectLog("+ Machine a")
	named := func(want ...string) {
		t.Helper()
		poll(t, "they are named", func() bool {
			unreadable := v.source.Unreadable()
			for _, name := range want {
				if unreadable[snapshot.Key{Kind: snapshot.KindMachine, Name: snapshot.Name{Name: name}}] == "" {
					return false
				}
			}
			return len(unreadable) == len(want)
		})
	}
	named("old")
	if trouble := v.source.Trouble(); len(trouble) > 0 {
		t.Errorf("the API is in trouble: %v", trouble)
	}
	// By a watch: what was known stays, and others go on.
	v.untilWatched(api)
	api.with(func() { api.spoilt["a"] = true })
	api.change("a", &v1alpha1.MachineSpec{Cordoned: true}, true)
	api.change("b", &v1alpha1.MachineSpec{}, true)
	v.until("b is there", func() bool { return v.machine("b") != nil })
	named("a", "old")
	if m := v.machine("a"); m == nil || m.Spec.Cordoned {
		t.Errorf("a is %v", m)
	}
	// By a list, in which one of them is gone that nobody saw go.
	api.with(func() { api.expired = true })
	api.change("old", nil, false)
	api.change("c", &v1alpha1.MachineSpec{}, false)
	api.breakWatches()
	v.until("c is there", func() bool { return v.machine("c") != nil })
	named("a")
	if v.machine("a") == nil {
		t.Error("a is gone")
	}
	// It is mended, or deleted.
	v.untilWatched(api)
	api.with(func() { api.spoilt = map[string]bool{"b": true} })
	api.change("a", &v1alpha1.MachineSpec{Cordoned: true}, true)
	v.until("a is mended", func() bool { return v.machine("a").Spec.Cordoned })
	api.change("b", &v1alpha1.MachineSpec{}, true)
	api.change("d", &v1alpha1.MachineSpec{}, true)
	v.until("d is there", func() bool { return v.machine("d") != nil })
	named("b")
	api.change("b", nil, true)
	v.until("b is gone", func() bool { return v.machine("b") == nil })
	named()
}
