// Package plane is the loop between the API and the machines: it follows the
// resources, translates what changed, publishes it to the machines' streams, and
// writes back what became of it.
//
// One goroutine, the loop, owns the snapshot, the translator and the catalog;
// everything else talks to it by channels. Machines come first: a change is on its
// way to them before any status is written. Consoles come last: what they ask has a
// part of the loop's time (ask).
//
// Beside what the proxies serve it settles what load balancers are told: frontends and their
// backends (frontend), who checks them and what they are found to be (health), which machines
// know of each other (around), and the order in which machines come to a pool (coming) and
// leave it (leaving). It lets machines join and connect: tokens and pods say who they are
// (machines), and authorities that take turns say which certificates are good (trust, rotation).
//
// It refuses to act on what it does not know: before its sources are synced it
// publishes nothing, and for twice the time-to-live after it began to lead it calls
// no machine lost and takes back no Programmed condition of machines that have not
// reported yet. While the API is away it goes on serving what it has.
//
// Invariant: whatever it publishes carries a pair (epoch, revision) larger than
// every pair that any plane published before, as long as the Lease or one agent
// remembers that.
package plane
