// Package nft balances frontends with nftables: destination NAT to the backends, and
// masquerading, so that answers return through this machine wherever the backend is.
//
// All rules are in one table, "inet fairlead". Four base chains look up a packet's VIP,
// transport and port in maps, so the number of frontends costs nothing. Each frontend has its own
// chain, which chooses the backend of a new flow by a hash (jhash) of the client,
// in ranges as wide as the weights. Established flows are conntrack's: a change of
// weights or a restart of the agent does not touch them, and a draining backend keeps its
// own. Flows of a backend that is unready or gone are deleted, so that clients reconnect.
//
// The name of an object contains a hash of its content. So an object with the right name has the right
// content, the next process finds its work done and changes only differences. Each frontend
// changes in one transaction.
//
// It refuses modes that keep the client's address, QUIC connection IDs and limits of flows to one
// backend, with an error that wraps errors.ErrUnsupported and names an alternative. It never touches the
// tables of others, and never changes a setting of the kernel: forwarding must be enabled already.
//
// Invariant: a new flow goes to a backend that is ready, or is dropped and counted.
package nft
