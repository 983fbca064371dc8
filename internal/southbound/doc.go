// Package southbound is the plane's side of the agent protocol: it enrolls
// machines, sends each of them its view by delta xDS and takes their reports.
//
// Views owns the sets of resources, one for each group of machines that are served
// alike and one for each machine; the plane publishes changes into it. Server
// speaks gRPC on top: Enrollment, the aggregated discovery service, Observer and Tapper, and Succession
// for other planes.
// The package stores nothing: what it knows of a machine is what that has said and shown, in
// memory, until it is forgotten (Server.Sweep) or the plane steps down, and CA and Token are values that their owner keeps. Authorities are
// the CAs that are trusted now: one, or two while one takes the other's place.
//
// What it refuses: anything but Join without a verified client certificate; Follow without a plane's; a
// machine name in use by another key; every service while the plane does not lead,
// with the leader's address; connections and messages beyond its limits. A machine
// that the plane has not placed yet is sent nothing, so that it keeps what it has.
//
// Invariants:
//   - Identity is the certificate's, never a field of a message.
//   - Who gets a certificate is told with it of the authority that signed it.
//   - A response never carries a smaller (epoch, revision) than the machine has
//     accepted before.
//   - A machine that accepted a checkpoint holds everything of that revision that
//     concerns it, less what it refused.
//   - A change of one view touches the streams of that view only.
//   - An address is proven by a connection from it with the machine's certificate, and by no
//     word of the machine.
//   - What a machine refuses, however much, is listed when it is read, not by its messages.
package southbound
