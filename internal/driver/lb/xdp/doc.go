// Package xdp balances flows with our own kernel programs: XDP where packets arrive
// from clients, tcx where they leave tunnels and where backends answer. The programs
// are in bpf/. Package bpf loads and attaches them and maintains next hops; this package fills the
// load balancer's maps, and checks the one thing that programs cannot find out themselves: whether
// answers find their way.
//
// Maps, links and programs are pinned below Config.Dir. Pinned objects keep working without a process.
// The next agent adopts the maps with their entries, so that a restart or an upgrade loses no packet
// and no flow.
//
// Writes are ordered so that no packet sees half a change: an entry is written before the entries that
// point to it, and removed after them. Rows of lookup tables are single machine words in
// memory shared with the kernel. A backend's slot in the maps has a generation, by which
// flows notice that the slot belongs to another backend now.
//
// It refuses features that the machine lacks with an error that wraps errors.ErrUnsupported and
// names the required version of Linux. It never touches packets without a
// frontend, interfaces that it was not given, or programs of others.
//
// Invariant: the cost of Set follows the change.
package xdp
