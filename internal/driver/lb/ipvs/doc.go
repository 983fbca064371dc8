// Package ipvs balances frontends with the kernel's IP Virtual Server: schedulers that
// hash (mh), weigh (wrr) or count connections (wlc), and NAT, IP-in-IP tunnels and direct
// routing to the backends.
//
// A frontend is a virtual service. Frontends of one VIP and owner with affinity and the same
// backends are one service of a firewall mark, so that a client stays at its backend across
// ports; a map in the table "inet fairlead-ipvs" of nftables marks their packets. IPVS does
// not record the owner of a service. So this package writes its own services to a file, which is
// valid until the machine boots again; services of its marks need no entry there.
//
// Draining is weight 0. A backend that is unready or gone is removed. The fate of its connections in IPVS
// is the machine's setting (net.ipv4.vs.expire_nodest_conn), and so is
// whether clients with affinity leave a draining backend
// (net.ipv4.vs.expire_quiescent_template). This package changes no setting and loads no module.
//
// It refuses mode DSRGeneve, source ranges, limits of new flows and QUIC connection IDs, with an error that
// wraps errors.ErrUnsupported and names an alternative. It also refuses a frontend for which
// another program has a service.
//
// Invariant: a service of another program is never changed.
package ipvs
