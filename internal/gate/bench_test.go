package gate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

// BenchmarkGate changes one host among 20,000 in 1,024 shards, with a cluster each,
// until Envoy has applied it, and loads all of them into a new Envoy.
func BenchmarkGate(b *testing.B) {
	const shards = 1024
	for _, count := range []int{2_000, 20_000} {
		now := time.Unix(1_000_000, 0)
		r := &relay{Feed: New(), now: func() time.Time { return now }, remember: func(batch) {}}
		byShard := make([][]gatetest.Host, shards)
		var changes []delta.Change
		for i := range count {
			c := fmt.Sprint("c", i)
			changes = append(changes, gatetest.Cluster(b, c, c, 0), gatetest.Endpoints(b, c, 1))
			byShard[i%shards] = append(byShard[i%shards], gatetest.Host{Name: fmt.Sprint("h", i), Clusters: []string{c}})
		}
		for i, hosts := range byShard {
			name := fmt.Sprint("r", i)
			changes = append(changes, gatetest.Routes(b, name, hosts...), gatetest.Scope(b, name, name))
		}
		w := &world{t: b, pending: append(changes, gatetest.Listener(b, "l", "x"))}
		w.deliver(r, true)
		e := newEnvoyModel(b, rand.New(rand.NewPCG(1, 1)), r)
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
				byShard[i][0].Salt = salt
				w.add(gatetest.Routes(b, fmt.Sprint("r", i), byShard[i]...))
				w.deliver(r, true)
				e.run()
			}
		})
		if applied := r.Applied(); applied.Number != w.revision {
			b.Fatalf("applied %s, want %d", applied, w.revision)
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
		if ok, _ := e.relay.Warm(e.relay.now()); e.listen != nil && ok {
			req := e.listen
			e.listen = nil
			e.pass(req)
			moved = true
		}
		for resp := e.relay.Next(e.stream); resp != nil; resp = e.relay.Next(e.stream) {
			e.inbox = append(e.inbox, resp)
		}
		for len(e.inbox) > 0 {
			e.receive()
			moved = true
		}
	}
}
