// Package discovery finds the routers on links by their Router Advertisements (RFC 4861), and shows this machine to
// them by its own, as unnumbered BGP has it: neither end is told the other's address.
//
// It only says who is there. It sends advertisements with a router lifetime of 0, which make nobody a default router
// of anybody, and changes neither routes nor sysctls: what the kernel makes of a router's advertisements is the
// kernel's business. Packets count only with a hop limit of 255, that is, from the link itself; what a link can make
// it remember and do is bounded.
package discovery
