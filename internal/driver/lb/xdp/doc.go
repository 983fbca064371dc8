// Package xdp balances flows with programs of ours in the kernel: XDP where packets come
// from clients, tcx where they come out of tunnels and where backends answer. The programs
// are in bpf/; package bpf loads and attaches them and keeps next hops; this package fills the
// load balancer's maps and looks after what programs cannot find out themselves (whether answers
// find their way).
//
// Maps, links and programs are pinned below Config.Dir. What is pinned works on without a process.
// The next agent adopts the maps with their entries, so that a restart or an upgrade loses no packet
// and no flow.
//
// Writes are ordered so that no packet meets half a change: what is pointed to is written
// before what points to it, and goes after it. Rows of lookup tables are single words in
// memory shared with the kernel. A backend's slot in the maps has a generation, by which
// flows know that the slot got another backend.
//
// It refuses what the machine cannot do with an error that wraps errors.ErrUnsupported and
// names the version of Linux that can. It never touches packets that are not for a
// frontend, interfaces that it was not told of, or programs of others.
//
// Invariant: what Set costs follows what changed.
package xdp
