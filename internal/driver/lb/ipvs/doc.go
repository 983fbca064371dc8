// Package ipvs carries frontends out with the kernel's IP Virtual Server: schedulers that
// hash (mh), weigh (wrr) or count connections (wlc), and NAT, IP-in-IP tunnels and direct
// routing to the backends.
//
// A frontend is a virtual service. Frontends of one VIP and owner with affinity and the same
// backends are one service of a firewall mark, so that a client stays at its backend over
// ports; a map in the table "inet fairlead-ipvs" of nftables marks their packets. IPVS does
// not know whose a service is: those that are ours are written down in a file, which is
// believed until the machine boots again; services of our marks need none.
//
// Draining is weight 0. A backend that is unready or gone is removed; what IPVS then does
// with its connections is the machine's setting (net.ipv4.vs.expire_nodest_conn), as is
// whether clients with affinity leave a draining backend
// (net.ipv4.vs.expire_quiescent_template). No setting is changed here, and no module is
// loaded.
//
// It refuses, with an error that wraps errors.ErrUnsupported and says what can instead:
// mode DSRGeneve, source ranges, limits of new flows and QUIC connection IDs; and a
// frontend that somebody else has a service for.
//
// Invariant: a service that is not ours is never changed.
package ipvs
