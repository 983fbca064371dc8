// Package plane is the loop between the API and the machines: it follows the
// resources, translates changes, publishes them to the machines' streams, and
// writes statuses back.
//
// One goroutine, the loop, owns the snapshot, the translator, the history, the catalog and the
// tracker; all others talk to it by channels. It receives, translates, publishes, judges and
// offers statuses to their writer (loop.go). Machines come first: a change is sent to them before any
// status is written. Questions of consoles have a bounded share of the loop's time (ask.go).
//
// A file calls files after it in this order, and none before it:
//
//	plane, succession              the process: its parts, and the planes before this one
//	loop, term, receive, own,      the steps of the loop; term is leadership, own the addresses of
//	freeze, translate, publish,    this plane; passage follows discovered changes until they are
//	judge, passage, offer,         in force
//	upstreams, peers
//	announce, changetraces,        what becomes of changes beside the machines: lines of the log,
//	recorder, recorderkeep,        traces, and who changed what: how that is kept, whom the API
//	stamp, recorded, changedkind   names, which changes are recorded, and of which kinds
//	viewed, tapscope               what those who look are answered from, by package watch
//	explain, explainflow, routes,  answers for people: explanations, routes, the status, metrics,
//	report, frontendreport,        questions to machines
//	networkreport, counts,
//	poolcounts, certificates,
//	askflows,
//	askupstreams, ask, routerows   and the rows of routes as consoles watch them: routerows calls
//	                               routes and counts again
//	frontend, checkers, handover,  what load balancers are sent: frontends and backends, checkers,
//	newcomers, leaving, network,   the order in which machines come to a VIP and leave it, VIPs and
//	frontendstatus, fleet,         peers; the type of a machine, and its addresses; the published
//	holding, frontends,            frontends, and the machines that know each other
//	neighbours
//	staples, send, hearing,        the basis of the files above: OCSP responses, publishing, the
//	objects, metrics               reports of machines, objects of the snapshot
//	infrastructure, gatewayapi     objects that represent Gateways; the version of Gateway API
//	keeper, keeperread, vault      revisions that outlive the plane
//	authorityfile, credentials,    machines that join and connect: tokens and pods identify machines,
//	rotation, trust, machines,     authorities that replace each other decide which certificates are
//	tokens, authority, keys        valid
//	owner, pods, readapi, lease,   the election, and the rest
//	inputs, signal
//
// The pure parts are packages of their own: placement (the listeners of each machine), catalog (the
// resources of each view), history (a Freeze, and the steps to roll back), health (checkers, and the
// health of backends), progress (how far objects are programmed), provenance (the resources that
// decide something). Package plane/status writes statuses, and plane/watch answers those who look at machines: its
// Viewers are a part of a Plane.
//
// It refuses to act without knowledge. Before its sources are synced it publishes nothing. For twice the
// time-to-live after it began to lead it calls no machine lost, and takes back no Programmed condition of
// machines that have not reported yet. While the API is away it goes on serving its state.
//
// Invariant: every publication carries a pair (epoch, revision) larger than
// every pair that any plane published before, as long as the Lease or one agent
// remembers that.
package plane
