// Package plane is the loop between the API and the machines: it follows the
// resources, translates changes, publishes them to the machines' streams, and
// writes back what became of them.
//
// One goroutine, the loop, owns the snapshot, the translator, the history, the catalog and the
// tracker; everything else talks to it by channels. It receives, translates, publishes, judges and
// writes (loop.go). Machines come first: a change is on its way to them before any status is written.
// Consoles come last: their questions have a part of the loop's time (ask.go).
//
// A file calls files after it in this order, and none before it:
//
//	plane, succession              the process: what runs, and the planes before this one
//	loop, term, receive, own,      the steps of the loop; term is leadership, own the addresses of
//	freeze, translate, publish,    this plane
//	judge, offer, peers
//	explain, explainflow, routes,  answers for people: explanations, routes, the status, metrics,
//	report, frontendreport,        questions to machines
//	networkreport, counts,
//	certificates, askflows, ask
//	handover, frontend, checkers,  what load balancers are told: frontends and backends, who checks them,
//	network, newcomers, leaving,   VIPs and peers, the order in which machines come to a VIP and leave
//	neighbours, frontendstatus,    it, which machines know of each other; what a machine is, and which
//	fleet, holding                 addresses it has
//	staples, send, hearing,        what all of these need: OCSP responses, publishing, the reports of
//	objects, metrics               machines, objects of the snapshot
//	infrastructure, gatewayapi     objects that stand for Gateways; the version of Gateway API
//	keeper, keeperread, vault      revisions that outlive the plane
//	authorityfile, access,         machines that join and connect: tokens and pods say who they are,
//	rotation, trust, machines,     authorities that take turns say which certificates are good
//	tokens, authority, keys
//	lease, owner, pods, resource,  the election, and the rest
//	signal
//
// Pure parts are packages of their own: placement (which listeners a machine is sent), catalog (the
// resources that views are offered), history (what a Freeze holds back, and the steps to turn back),
// health (who checks which backend), progress (how far objects are programmed), provenance (which
// resources decide something). Package plane/status
// writes statuses.
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
