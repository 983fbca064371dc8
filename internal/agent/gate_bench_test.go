package agent

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
)

// BenchmarkGate changes one host among 20,000 in 1,024 shards, with a cluster each,
// until Envoy has settled it, and loads all of them into a new Envoy.
func BenchmarkGate(b *testing.B) {
	const shards = 1024
	for _, count := range []int{2_000, 20_000} {
		now := time.Unix(1_000_000, 0)
		s := newState(func() time.Time { return now }, func(memoryBatch) {}, func() {})
		byShard := make([][]host, shards)
		var changes []delta.Change
		for i := range count {
			c := fmt.Sprint("c", i)
			changes = append(changes, testCluster(b, c, c, 0), testEndpoints(b, c, 1))
			byShard[i%shards] = append(byShard[i%shards], host{name: fmt.Sprint("h", i), clusters: []string{c}})
		}
		for i, hosts := range byShard {
			name := fmt.Sprint("r", i)
			changes = append(changes, testRoutes(b, name, hosts...), testScope(b, name, name))
		}
		w := &world{t: b, pending: append(changes, testListener(b, "l", "x"))}
		w.deliver(s, true)
		e := newEnvoyModel(b, rand.New(rand.NewPCG(1, 1)), s)
		e.unchecked = true
		e.run()
		b.Run(fmt.Sprintf("hosts=%d/new-envoy", count), func(b *testing.B) {
			for b.Loop() {
				e.boot()
				e.run()
			}
		})
		b.Run(fmt.Sprintf("hosts=%d/one-host", count), func(b *testing.B) {
			salt := 0
			for b.Loop() {
				salt++
				i := salt % shards
				byShard[i][0].salt = salt
				w.add(testRoutes(b, fmt.Sprint("r", i), byShard[i]...))
				w.deliver(s, true)
				e.run()
			}
		})
		if _, settled := s.revisions(); settled.Number != w.revision {
			b.Fatalf("settled %s, want %d", settled, w.revision)
		}
	}
}

// run does everything that there is to do, in order.
func (e *envoyModel) run() {
	for moved := true; moved; {
		moved = false
		for len(e.outbox) > 0 {
			e.send()
			moved = true
		}
		if ok, _ := e.state.warm(); e.listen != nil && ok {
			req := e.listen
			e.listen = nil
			e.pass(req)
			moved = true
		}
		for resp := e.state.next(e.stream); resp != nil; resp = e.state.next(e.stream) {
			e.inbox = append(e.inbox, resp)
		}
		for len(e.inbox) > 0 {
			e.take()
			moved = true
		}
	}
}
