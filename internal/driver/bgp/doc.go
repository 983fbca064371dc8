// Package bgp advertises the VIPs of a machine to its routers: it keeps one session to each configured peer
// (RFC 4271), sends the configured prefixes, and reports the state of each session with the reason.
//
// It only advertises. It connects out, and listens only while a peer is configured to connect. Of a peer's routes it
// keeps only the number: no route of a peer ever reaches the machine. One peer never disturbs another: each has its own
// goroutine, connection and failures. The same configuration may be set again; only differences travel, and a difference
// in one prefix touches neither a session nor another prefix.
//
// Sessions end in one of two ways. To leave is to close the connection without a NOTIFICATION, so that a peer with
// graceful restart (RFC 4724) keeps the routes until this machine returns: the data plane goes on without its
// agent, so every OPEN says that forwarding is preserved. To cease is to send a NOTIFICATION, and peers drop the routes
// at once.
//
// BFD distinguishes a dead machine from a restarting agent. Routers treat every end of a BFD session as a failure,
// including AdminDown, despite RFC 5882, 4.3. So a session does not end with its process. A process that leaves asks
// for an interval as long as the peer's patience with a restart, and falls silent. A file has the state with which the
// next process continues the session. That also works after a kill, if the next process runs within the
// detection time.
//
// gobgp's packet library writes the messages and parses all but OPENs and headers. Its server is not used. Before a
// session is established, it drops the peer's NOTIFICATION, hides why a connection failed, and waits at least two seconds
// before each attempt and five after each loss; and it preserves forwarding only if it holds its routes back first.
package bgp
