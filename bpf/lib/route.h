/* Where packets leave the machine: link addresses, tag and interface. */
#pragma once

#include "maps.h"
#include "parse.h"

#define AF_INET 2
#define AF_INET6 10

#define LOOPBACK 1 /* its index in every network namespace */

/* Asks the kernel for the way to an address. Returns 0 or a reason, negative. Cold: the
 * agent resolves next hops before packets need them. */
static __noinline int route(struct xdp_md *xdp, const struct address *to, struct next_hop *out)
{
	if (!to || !out)
		return -REASON_INTERNAL;
	struct bpf_fib_lookup fib = {};
	if (is4(to)) {
		fib.family = AF_INET;
		fib.ipv4_dst = to->words[3];
	} else {
		fib.family = AF_INET6;
#pragma unroll
		for (int i = 0; i < 4; i++)
			fib.ipv6_dst[i] = to->words[i];
	}
	/* As a packet of this machine's own, which needs forwarding on at the loopback; else as
	 * one that is forwarded from where the client's came. */
	fib.ifindex = LOOPBACK;
	long answer = bpf_fib_lookup(xdp, &fib, sizeof(fib), 0);
	if (answer == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		fib.ifindex = xdp->ingress_ifindex;
		answer = bpf_fib_lookup(xdp, &fib, sizeof(fib), 0);
	}
	if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH)
		return -REASON_NO_ROUTE;
	out->device = fib.ifindex;
	out->mtu = fib.mtu_result;
	__builtin_memcpy(out->to, fib.dmac, 6);
	__builtin_memcpy(out->from, fib.smac, 6);
	out->vlan = 0;
	out->flags = NEXT_HOP_REDIRECT;
	if (answer == BPF_FIB_LKUP_RET_NO_NEIGH) {
		out->mtu = 0xffff; /* not said then */
		out->flags = NEXT_HOP_REDIRECT | NEXT_HOP_KERNEL;
	}
	return 0;
}

/* The entry of next_hops if the agent resolved it, else what the kernel says, written to
 * scratch. Null: there is no way. */
static __always_inline struct next_hop *next_hop_of(struct packet *p, __u32 index, const struct address *to,
						    struct next_hop *scratch)
{
	struct next_hop *nh = bpf_map_lookup_elem(&next_hops, &index);
	if (likely(nh && nh->device))
		return nh;
	if (!scratch)
		return 0;
	scratch->source4 = nh ? nh->source4 : 0;
	if (nh) {
		scratch->source = nh->source;
	} else {
		scratch->source.halves[0] = 0;
		scratch->source.halves[1] = 0;
	}
	return route(p->xdp, to, scratch) ? 0 : scratch;
}

/* Bytes of the link header towards a next hop. */
static __always_inline __u32 link_size(const struct next_hop *nh)
{
	return sizeof(struct ethhdr) + (nh->vlan ? sizeof(struct vlan_tag) : 0);
}

/* Writes the link header for a next hop to data, of which link_size bytes are in bounds. */
static __always_inline void write_link(void *data, const struct next_hop *nh, __be16 protocol)
{
	/* In pieces that are aligned in next_hop, which may be on the stack. */
	*(__u16 *)data = *(__u16 *)nh->to;
	*(__u32 *)(data + 2) = *(__u32 *)(nh->to + 2);
	*(__u32 *)(data + 6) = *(__u32 *)nh->from;
	*(__u16 *)(data + 10) = *(__u16 *)(nh->from + 4);
	if (unlikely(nh->vlan)) {
		*(__be16 *)(data + 12) = bpf_htons(ETH_P_8021Q);
		*(__be16 *)(data + 14) = bpf_htons(nh->vlan);
		*(__be16 *)(data + 16) = protocol;
		return;
	}
	*(__be16 *)(data + 12) = protocol;
}

/* What the XDP program writes before a packet (bpf_xdp_adjust_meta) that it leaves to
 * tunnel_in: one that it cannot send because the kernel has to find way or neighbour, or, with
 * device 0, one that it put into a tunnel to this machine. Nothing that comes over a wire
 * has it. */
#define RESEND 0x4661696c

struct resend {
	__u32 magic;
	__u32 device;
};

/* Set when a driver had no room for the note: then tunnels from our own address are believed. */
__u32 unmarked;

/* Notes that the packet, in a tunnel from and to this machine, comes from here. */
static __always_inline int leave_here(struct xdp_md *xdp)
{
	if (bpf_xdp_adjust_meta(xdp, -(int)sizeof(struct resend))) {
		if (!unmarked)
			unmarked = 1;
		return XDP_PASS;
	}
	struct resend *r = (void *)(long)xdp->data_meta;
	if ((void *)(r + 1) > (void *)(long)xdp->data)
		return -REASON_INTERNAL;
	r->magic = RESEND;
	r->device = 0;
	return XDP_PASS;
}

/* Leaves the packet to tunnel_in, which has it sent through a device. */
static __always_inline int leave_to_kernel(struct xdp_md *xdp, __u32 device)
{
	if (bpf_xdp_adjust_meta(xdp, -(int)sizeof(struct resend)))
		return -REASON_NO_ROUTE;
	struct resend *r = (void *)(long)xdp->data_meta;
	if ((void *)(r + 1) > (void *)(long)xdp->data)
		return -REASON_INTERNAL;
	r->magic = RESEND;
	r->device = device;
	return XDP_PASS;
}

/* The verdict that sends what now has the right link header. */
static __always_inline int leave(struct xdp_md *xdp, const struct next_hop *nh)
{
	if (likely(nh->device == xdp->ingress_ifindex && !(nh->flags & NEXT_HOP_REDIRECT)))
		return XDP_TX;
	if (unlikely(nh->flags & NEXT_HOP_KERNEL))
		return leave_to_kernel(xdp, nh->device);
	return bpf_redirect(nh->device, 0);
}

/* Gives the packet, whose IP header stays as it is, the link header for a next hop and
 * sends it. Pointers into the packet are void afterwards. Returns a verdict or a reason,
 * negative. */
static __always_inline int forward(struct packet *p, const struct next_hop *nh)
{
	__u32 size = link_size(nh);
	if (unlikely(size != p->link)) {
		if (bpf_xdp_adjust_head(p->xdp, (int)p->link - (int)size))
			return -REASON_NO_HEADROOM;
	}
	void *data = (void *)(long)p->xdp->data;
	void *end = (void *)(long)p->xdp->data_end;
	if (data + sizeof(struct ethhdr) + sizeof(struct vlan_tag) > end)
		return -REASON_TRUNCATED;
	write_link(data, nh, p->version == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
	return leave(p->xdp, nh);
}
