// Package agent is the machine's half of Fairlead: it joins a plane, receives the
// machine's state on one delta xDS stream, remembers it, has the machine's drivers carry
// it out, and reports what the machine sees.
//
// It is made of parts, which New wires on one page. A plane's resources go from upstream to
// desired, which refuses what is older, and from there to the parts that receive their types:
//
//   - relay: the proxy, by package gate and Envoy's stream;
//   - checks: backends that this machine asks whether they work;
//   - balancer: frontends and their backends, by data planes;
//   - announcer: VIPs, once they are served, by BGP, ARP and NDP;
//   - drainer: the end of all this in order, when the machine is cordoned or stops.
//
// The keeper remembers what desired accepted and what Envoy accepted. The reporter tells a
// plane what the parts see. What the agent drives, it states as interfaces (driver.go), which
// are implemented elsewhere.
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
//
// Its files in reading order, each of which calls only those after it:
//
//   - agent.go, config.go, status.go, metrics.go, balancermetrics.go, checkmetrics.go,
//     release.go, stoptime.go: the whole;
//   - upstream.go, reporter.go, prover.go, addressorder.go: the connection to a plane;
//   - membership.go, identity.go, credential.go, tries.go, reach.go, trust.go, errors.go: who
//     the machine is to planes;
//   - desired.go: what planes have sent;
//   - drainer.go;
//   - announcer.go, obstacle.go, awaiting.go: when a VIP is announced;
//   - balancer.go, balancerreport.go, leaving.go, parting.go, entry.go, drive.go, guard.go,
//     hang.go: which data plane has a frontend, and what it is told;
//   - relay.go, stream.go, withhold.go, watch.go, refusals.go, feed.go: what Envoy is given,
//     and what it is asked;
//   - checks.go, reported.go;
//   - keeper.go, memory.go, lag.go, secret.go, proxyless.go, lock.go, authority.go: files;
//   - driver.go, part.go, resource.go: the interfaces, and what everything above is made of.
package agent
