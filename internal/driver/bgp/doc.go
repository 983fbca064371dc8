// Package bgp advertises the VIPs of a machine to its routers: it keeps one session to every peer that it is told of
// (RFC 4271), sends the prefixes that it is told of, and says about each session how it stands and why.
//
// It only advertises. It connects out, and listens only while a peer is to connect; of what a peer sends it keeps the number:
// no route of a peer ever reaches the machine. One peer never disturbs another: each has a goroutine, a connection and a
// failure of its own. What is wanted may be set again and again; only differences travel, and a difference in one
// prefix touches neither a session nor another prefix.
//
// Sessions end in one of two ways. To leave is to close the connection without a NOTIFICATION, so that a peer that
// speaks graceful restart (RFC 4724) keeps the routes until this machine is back: the data plane goes on without its
// agent, so every OPEN says that forwarding is preserved. To cease is to say so, and peers drop the routes at once.
//
// BFD tells a machine that is dead from an agent that restarts. Routers take every end of a BFD session for a failure,
// AdminDown included, whatever RFC 5882, 4.3 says. So a session does not end with its process: one that leaves asks for
// an interval as long as the peer's patience with a restart, and falls silent; and each process finds in a file what it
// takes to go on where the one before it stopped, also if that one was killed and the next is back within the
// detection time.
//
// gobgp's packet library writes the messages and reads all but OPENs and headers. Its server is not used: before a session is
// established it drops the peer's NOTIFICATION, hides why a connection failed, and waits at least two seconds before
// each attempt and five after each loss; and it preserves forwarding only if it holds its routes back first.
package bgp
