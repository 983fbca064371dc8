// Package agent is the machine's half of Fairlead: it joins a plane, receives the
// machine's state on one delta xDS stream, remembers it, relays it to the local
// Envoy and reports what Envoy made of it.
//
// The heart is package gate, which is pure: it decides what Envoy may see now (make
// before break). Beside it stand the relay (Envoy's side), the upstream (the
// plane's side), the memory (the disk's side) and the proxy, whose interface is
// stated here and implemented elsewhere. Beside them stand what the machine does in the
// network: the announcer (VIPs, for which it waits until they are served), the balancer (data
// planes), the checks of backends, and the drainer, which ends all this in order.
//
// What it refuses: a state older than the largest (epoch, revision) that it has
// accepted; a second agent on the same data directory; resources that cannot be
// read, which are answered with a NACK that names them.
//
// Invariants:
//   - Fail static: a lost plane, a full disk, an expired certificate or an agent
//     that stops takes nothing from Envoy.
//   - A virtual host that Envoy holds names only clusters that Envoy holds warm.
//   - One bad resource holds back itself only.
package agent
