package southbound

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// callerNetworks is from how many networks a machine is known to call: one of each family.
	callerNetworks = 2
	// callerPause is how long one that a machine has called from stays before another takes its place:
	// a hostile machine with many addresses would take the handshakes of the others by them.
	callerPause = time.Minute
)

// callers are the networks from which machines have called: clients from there do not stand in line
// with strangers.
type callers struct {
	most int // machines that are remembered
	now  func() time.Time

	mu       sync.Mutex
	machines map[string][]calledFrom
	networks map[netip.Prefix]int // by how many machines
}

// calledFrom is a network and when a machine called from it last.
type calledFrom struct {
	network netip.Prefix
	at      time.Time
}

func newCallers(most int, now func() time.Time) *callers {
	return &callers{most: most, now: now, machines: map[string][]calledFrom{}, networks: map[netip.Prefix]int{}}
}

// has says whether a machine calls from the network.
func (c *callers) has(network netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.networks[network] > 0
}

// first notes from where a machine calls of which nothing is known yet. Its later connections may be for
// proving its other addresses.
func (c *callers) first(machine string, network netip.Prefix) {
	c.mu.Lock()
	known := len(c.machines[machine]) > 0
	c.mu.Unlock()
	if !known {
		c.note(machine, network)
	}
}

// note notes from where a machine's stream comes.
func (c *callers) note(machine string, network netip.Prefix) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	of, known := c.machines[machine]
	if i := slices.IndexFunc(of, func(f calledFrom) bool { return f.network == network }); i >= 0 {
		of[i].at = now
		return
	}
	if !known && len(c.machines) >= c.most {
		return
	}
	if len(of) == callerNetworks {
		oldest := slices.IndexFunc(of, func(f calledFrom) bool {
			return !slices.ContainsFunc(of, func(o calledFrom) bool { return o.at.Before(f.at) })
		})
		if now.Sub(of[oldest].at) < callerPause {
			return
		}
		decrease(c.networks, of[oldest].network)
		of = slices.Delete(of, oldest, oldest+1)
	}
	c.machines[machine] = append(of, calledFrom{network, now})
	c.networks[network]++
}

// forget drops a machine.
func (c *callers) forget(machine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.machines[machine] {
		decrease(c.networks, f.network)
	}
	delete(c.machines, machine)
}

// decrease counts one less, and nothing where none is left.
func decrease(counts map[netip.Prefix]int, network netip.Prefix) {
	if counts[network]--; counts[network] == 0 {
		delete(counts, network)
	}
}
