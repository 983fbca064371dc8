// Package nft carries frontends out with nftables: destination NAT to the backends, and
// masquerading, so that answers come back through this machine wherever the backend is.
//
// Everything is in one table, "inet fairlead". Four base chains look a packet's VIP,
// transport and port up in maps, so that their number costs nothing; each frontend has a
// chain of its own that chooses the backend of a new flow by a hash (jhash) of the client,
// in ranges as wide as the weights say. Established flows are conntrack's: a change of
// weights or a restart of the agent does not touch them, and a draining backend keeps its
// own. Those of a backend that is unready or gone are deleted, so that clients begin anew.
//
// Names of objects hold a hash of what is in them. What is there by its name is right, so
// the next process finds its work done and changes only what differs; each frontend
// changes in one transaction.
//
// It refuses, with an error that wraps errors.ErrUnsupported and says what can instead:
// modes that keep the client's address, QUIC connection IDs and limits of flows to one
// backend. It never touches the tables of others, and never changes a setting of the
// kernel: forwarding has to be on already.
//
// Invariant: a new flow goes to a backend that is ready, or is dropped and counted.
package nft
