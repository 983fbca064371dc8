package plane

import (
	"slices"
	"testing"
)

// TestInputsAreServed holds that a poll serves one of what waits and waits for nothing, and that what comes next is
// served, wherever it comes from.
func TestInputsAreServed(t *testing.T) {
	var served []string
	serve := func(s string) { served = append(served, s) }
	full, other, none := make(chan string, 2), make(chan string, 1), (chan string)(nil)
	inputs := []input{from(none, serve), from(full, serve), from(other, serve), from(always, func(struct{}) { serve("always") })}
	full <- "one"
	full <- "two"
	for _, in := range inputs {
		in.poll()
	}
	if want := []string{"one", "always"}; !slices.Equal(served, want) {
		t.Errorf("%v were served, want %v", served, want)
	}
	served = nil
	serveNext(inputs[:3]...)
	other <- "three"
	serveNext(inputs[:3]...)
	if want := []string{"two", "three"}; !slices.Equal(served, want) {
		t.Errorf("%v were served, want %v", served, want)
	}
}
