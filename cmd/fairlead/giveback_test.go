package main

import (
	"testing"
	"time"
)

// TestMemoryIsGivenBackWhenQuiet holds that a process which is busy gives nothing back, one that is quiet
// what it can have, and one that has allocated little since does not collect garbage for nothing.
func TestMemoryIsGivenBackWhenQuiet(t *testing.T) {
	var h heap
	given := 0
	g := giver{read: func() heap { return h }, free: func() { given++; h.live = 400 << 20 }}
	now := time.Unix(1e9, 0)
	look := func(what string, want int) {
		t.Helper()
		now = now.Add(giveBackLook)
		given = 0
		g.look(now)
		if given != want {
			t.Errorf("%s: gave back %d times, want %d", what, given, want)
		}
	}
	h = heap{allocated: 1 << 30, live: 800 << 20}
	look("at the first look", 0)
	for range 20 {
		h.allocated += 101 << 20
		look("while it is busy", 0)
	}
	h.allocated += 99 << 20
	look("as soon as it is quiet", 1)
	for range 20 {
		h.allocated += 1 << 20
		look("with little since", 0)
	}
	for range 2 {
		h.allocated += 39 << 20
		look("with less than a quarter", 0)
	}
	h.allocated += 2 << 20
	look("with a quarter", 1)
	for range int(giveBackPause/giveBackLook) - 1 {
		h.allocated += 45 << 20
		look("too soon", 0)
	}
	look("after a pause", 1)
}

// TestHeapIsRead holds that the runtime knows the names of what is read.
func TestHeapIsRead(t *testing.T) {
	before := readHeap()
	debris = make([]byte, 1<<20)
	if after := readHeap(); after.allocated < before.allocated+1<<20 {
		t.Errorf("allocated %d before a mebibyte, %d after", before.allocated, after.allocated)
	}
}

var debris []byte
