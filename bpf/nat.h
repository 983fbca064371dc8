/* MODE_NAT: addresses of both ends rewritten, both ways. Returns of both functions: a
 * verdict of XDP, or a reason, negative. They see packets of every packet_kind. */
#pragma once

#include "maps.h"
#include "parse.h"
#include "route.h"

/* Rewrites a packet of a client for backend b and sends it. flow->nat_port is the port that
 * the flow has at this machine, network byte order; 0: it has none yet, and gets one here. */
static __always_inline int nat_forward(struct packet *p, struct frontend *f, struct backend *b, struct flow *flow)
{
	return -REASON_INTERNAL;
}

/* Rewrites an answer of a backend and sends it to the client. XDP_PASS, and the packet
 * untouched: it is none. */
static __always_inline int nat_back(struct packet *p)
{
	return XDP_PASS;
}
