// Package discovery finds the routers on links by their Router Advertisements (RFC 4861), and shows this machine to
// them by its own, as unnumbered BGP does: neither end is configured with the other's address.
//
// It only reports which routers exist. Its advertisements have a router lifetime of 0, so no host makes this machine
// its default router. It changes neither routes nor sysctls; the kernel decides about the advertisements of routers.
// Packets count only with a hop limit of 255, that is, from the link itself. The memory and the work that a link can
// cause are bounded.
package discovery
