/* The kernel's routes, asked as for packets of the machine itself. */
#pragma once

#include "maps.h"
#include "parse.h"
#include "route.h"

/* Asks for the way to an address. Returns what bpf_fib_lookup does; of a way whose
 * neighbour is not known out has the device. fib is scratch. The loopback must have forwarding on
 * (net.ipv4.conf.lo.forwarding, which forwards nothing by itself): the kernel does not
 * answer for others. */
static __always_inline long find_way(struct xdp_md *xdp, struct bpf_fib_lookup *fib, const struct address *from,
				     const struct address *to, struct next_hop *out)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = LOOPBACK;
	if (is4(to)) {
		fib->family = AF_INET;
		fib->ipv4_src = from->words[3];
		fib->ipv4_dst = to->words[3];
	} else {
		fib->family = AF_INET6;
		for (int i = 0; i < 4; i++) {
			fib->ipv6_src[i] = from->words[i];
			fib->ipv6_dst[i] = to->words[i];
		}
	}
	long r = bpf_fib_lookup(xdp, fib, sizeof(*fib), 0);
	out->device = fib->ifindex;
	out->mtu = fib->mtu_result;
	__builtin_memcpy(out->to, fib->dmac, 6);
	__builtin_memcpy(out->from, fib->smac, 6);
	out->vlan = 0;
	out->flags = NEXT_HOP_REDIRECT;
	return r;
}
