/* From a backend to a verdict. */
#pragma once

#include "../lib/answer.h"
#include "../lib/count.h"
#include "../lib/parse.h"
#include "../lib/route.h"
#include "encap.h"
#include "maps.h"
#include "nat.h"
#include "row.h"
#include "work.h"

static __always_inline void count_sent(const struct packet *p, __u32 frontend, __u32 at, __u32 begins)
{
	count(&frontend_counters, frontend, p->length, begins);
	count(&backend_counters, at, p->length, begins);
}

/* next_hop_of with room for what the kernel says. */
static __always_inline struct next_hop *way_to(struct packet *p, __u32 index, const struct address *to)
{
	struct next_hop *nh = bpf_map_lookup_elem(&next_hops, &index);
	if (likely(nh && nh->device))
		return nh;
	struct work *w = work();
	return w ? next_hop_of(p, index, to, &w->way) : 0;
}

/* Sends the packet to backend b, whose place is at, by its mode; MODE_NAT is send_nat's.
 * way is null when it can be computed. With brief, a constant, is_short(b). Returns a
 * verdict, or a reason, negative. */
static __always_inline int send(struct packet *p, const struct frontend *f, __u32 at, const struct backend *b,
				const struct way *way, __u32 begins, int brief)
{
	__u8 mode = b->mode;
	if (!brief && (mode == MODE_LOCAL || ((b->flags & BACKEND_HERE) && mode != MODE_GENEVE))) {
		count_sent(p, f->index, at, begins);
		return XDP_PASS;
	}
	if (unlikely(p->ttl <= 1))
		return -REASON_LOOP;
	struct next_hop *nh;
	int outer4 = is4(&b->remote);
	if (likely(mode == MODE_IPIP)) {
		nh = way_to(p, b->next_hop, &b->remote);
		if (!nh)
			return -REASON_NO_ROUTE;
		if (unlikely(p->length + encap_room(0, outer4) > nh->mtu))
			return too_big(p->xdp, nh->mtu - encap_room(0, outer4));
		count_sent(p, f->index, at, begins);
		return encap_ipip(p, b, nh, outer4);
	}
	if (mode == MODE_GENEVE) {
		struct turns t;
		__u64 hash = way ? way->hash : flow_hash(p, f->hash);
		int hops = p->protocol == IPPROTO_TCP || (f->flags & FRONTEND_SETTLING);
		order_turns(&t, b, way ? way->row : hops ? row_of(f, hash) : 0);
		if (!brief && (b->flags & BACKEND_HERE)) {
			count_sent(p, f->index, at, begins);
			return encap_here(p, b, &t, hash);
		}
		nh = way_to(p, b->next_hop, &b->remote);
		if (!nh)
			return -REASON_NO_ROUTE;
		if (unlikely(p->length + encap_room(&t, outer4) > nh->mtu)) /* other packets may carry all ids */
			return too_big(p->xdp, nh->mtu - encap_most(outer4));
		count_sent(p, f->index, at, begins);
		return encap_geneve(p, b, nh, &t, outer4, hash);
	}
	if (!brief && mode == MODE_L2) {
		/* The backend is on the segment: its own address leads to it. */
		nh = way_to(p, b->next_hop, &b->address);
		if (!nh)
			return -REASON_NO_ROUTE;
		if (unlikely(p->length > nh->mtu))
			return too_big(p->xdp, nh->mtu);
		count_sent(p, f->index, at, begins);
		decrement_ttl(p);
		return forward(p, nh);
	}
	return -REASON_INTERNAL;
}

/* MODE_NAT. */
static __noinline int send_nat(struct packet *p, struct frontend *f, __u32 at, struct backend *b, struct flow *flow)
{
	__u32 index = f->index;
	if (p->ttl <= 1)
		return -REASON_LOOP;
	int verdict = nat_forward(p, f, b, flow);
	if (verdict >= 0)
		count_sent(p, index, at, 0);
	return verdict;
}
