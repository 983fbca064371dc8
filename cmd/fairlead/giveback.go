package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// giveBackLook is how often a process looks whether it is quiet.
	giveBackLook = 5 * time.Second
	// giveBackPause is how long it gives nothing back again.
	giveBackPause = 30 * time.Second
	// giveBackLeast is how much must have been allocated since, beside a quarter of what is in use; and one
	// that has allocated less than that, beside an eighth, since the last look, is quiet.
	giveBackLeast = 32 << 20
)

// giveBack returns memory to the system that was needed while much changed, as soon as the process is
// quiet, until ctx is done. The runtime by itself collects garbage every two minutes then, and keeps
// what that frees for as much again: after 20,000 routes were written that was half of what a plane had.
func giveBack(ctx context.Context) {
	ticker := time.NewTicker(giveBackLook)
	defer ticker.Stop()
	g := giver{read: readHeap, free: debug.FreeOSMemory}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			g.look(now)
		}
	}
}

// heap is how many bytes the process has allocated since it began, and how many the last collection has left.
type heap struct{ allocated, live uint64 }

func readHeap() heap {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return heap{allocated: samples[0].Value.Uint64(), live: samples[1].Value.Uint64()}
}

// giver decides when memory is given back.
type giver struct {
	read func() heap
	free func() // collects garbage, and gives all back that is free

	last  heap      // at the last look
	given heap      // after memory was given back
	at    time.Time // when that was
}

// look gives back what is free if little was allocated since the last look, and there can be enough of it.
func (g *giver) look(now time.Time) {
	h := g.read()
	quiet := h.allocated-g.last.allocated < max(giveBackLeast, h.live/8)
	if quiet && now.Sub(g.at) >= giveBackPause && h.allocated-g.given.allocated >= max(giveBackLeast, h.live/4) {
		g.free()
		h = g.read()
		g.given, g.at = h, now
	}
	g.last = h
}
