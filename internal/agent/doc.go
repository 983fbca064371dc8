// Package agent is the machine's half of Fairlead: it joins a plane, receives the
// machine's state on one delta xDS stream, remembers it, lets the machine's drivers carry
// it out, and reports observations.
//
// An agent consists of parts, which New wires on one page. A plane's resources arrive at planeLink
// and go to desired, which refuses older revisions, and from there to the parts that receive their types:
//
//   - relay: the proxy, by package gate and Envoy's stream;
//   - checks: the health checks that this machine runs;
//   - balancer: frontends and their backends, by data planes;
//   - announcer: VIPs, once they are served, by BGP, ARP and NDP;
//   - drainer: the orderly end of all this, when the machine is cordoned or stops.
//
// The keeper remembers the resources that desired accepted and that Envoy accepted. The reporter sends
// the parts' observations to a plane. The agent declares the interfaces of its drivers (driver.go); other
// packages implement them.
//
// It refuses a state older than the largest (epoch, revision) that it has accepted, a second agent on the
// same data directory, and resources that cannot be read: a NACK names them.
//
// Invariants:
//   - Fail static: a lost plane, a full disk, an expired certificate or an agent
//     that stops takes nothing from Envoy.
//   - A virtual host that Envoy holds names only clusters that Envoy holds warm.
//   - A bad resource holds back only itself.
//
// Its files in reading order, each of which calls only later ones:
//
//   - agent.go, config.go, status.go, metrics.go, balancermetrics.go, checkmetrics.go,
//     release.go, stoptime.go: the whole;
//   - planelink.go, reporter.go, prover.go, addressorder.go: the connection to a plane;
//   - membership.go, identity.go, credential.go, tries.go, reach.go, trust.go, errors.go: the
//     machine's identity towards planes;
//   - desired.go: the resources that planes have sent;
//   - drainer.go;
//   - tapper.go, taprecord.go, flowtapper.go, flowdiff.go: the requests and flows that somebody looks at;
//   - announcer.go, obstacle.go, awaiting.go: the conditions for announcing a VIP;
//   - balancer.go, balancerreport.go, leaving.go, parting.go, entry.go, drive.go, guard.go,
//     hang.go: the data plane of each frontend, and the frontends and backends that it is given;
//   - relay.go, stream.go, withhold.go, watch.go, refusals.go, feed.go: the resources that Envoy is given,
//     and the questions that it is asked;
//   - requestmetrics.go, meter.go, loadmetrics.go, loads.go, sampler.go, exemplars.go: what Envoy counts, and the requests of
//     which it sends records;
//   - checks.go, reported.go;
//   - keeper.go, memory.go, lag.go, secret.go, proxyless.go, lock.go, authority.go: files;
//   - driver.go, part.go, resource.go: the interfaces, and the types that all files above use.
package agent
