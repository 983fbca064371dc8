/* New addresses and ports in an skb. Checksums are updated incrementally (RFC 1624), so
 * that a wrong one stays wrong, and whatever the device has done or is to do about them:
 * not at all, CHECKSUM_PARTIAL and CHECKSUM_COMPLETE. */
#pragma once

#include "datagram.h"

#ifndef BPF_F_IPV6
#define BPF_F_IPV6 (1ULL << 7) /* Linux 6.16 */
#endif

enum side { SOURCE, DESTINATION };

/* sum with what a change of a 16-bit word adds to it. */
static __always_inline __u64 sum16(__u64 sum, __u16 old, __u16 new)
{
	return sum + (__u16)~old + new;
}

static __always_inline __u32 sum_address(bool v6, struct address *old, struct address *new)
{
	if (v6)
		return bpf_csum_diff(old->words, 16, new->words, 16, 0);
	return bpf_csum_diff(&old->words[3], 4, &new->words[3], 4, 0);
}

/* A transport checksum after a change of its pseudo header. */
static __always_inline int pseudo(struct __sk_buff *skb, __u32 at, bool v6, __u32 sum, __u64 flags)
{
	flags |= BPF_F_PSEUDO_HDR;
	if (!v6)
		return bpf_l4_csum_replace(skb, at, 0, sum, flags);
	if (!bpf_l4_csum_replace(skb, at, 0, sum, flags | BPF_F_IPV6))
		return 0;
	/* Before Linux 6.16 the sum of a whole packet (CHECKSUM_COMPLETE) changes along,
	 * as if IPv6 had a header checksum that evens it out. */
	if (bpf_l4_csum_replace(skb, at, 0, sum, flags))
		return -1;
	bpf_csum_update(skb, sum);
	return 0;
}

static __always_inline __u32 address_at(const struct datagram *d, enum side side)
{
	if (d->v6)
		return d->at + (side == SOURCE ? 8 : 24);
	return d->at + (side == SOURCE ? 12 : 16);
}

static __always_inline int store_address(struct __sk_buff *skb, const struct datagram *d, enum side side,
					 struct address *a)
{
	if (d->v6)
		return bpf_skb_store_bytes(skb, address_at(d, side), a, 16, 0);
	return bpf_skb_store_bytes(skb, address_at(d, side), &a->words[3], 4, 0);
}

/* Gives one end of a datagram another address and, unless it is a later fragment, another
 * port. Its families must be the same. */
static __always_inline int readdress(struct __sk_buff *skb, struct datagram *d, enum side side, struct address *a,
				     __u16 port)
{
	struct address *old = side == SOURCE ? &d->source : &d->destination;
	__u32 sum = sum_address(d->v6, old, a);

	if (is4(a) == d->v6)
		return -1;
	if (d->part != PART_LATER && is_ports(d->protocol)) {
		__u16 old_port = side == SOURCE ? d->from : d->to;
		bool tcp = d->protocol == IPPROTO_TCP;
		__u32 check = d->transport + (tcp ? 16 : 6);
		__u64 flags = tcp ? 0 : BPF_F_MARK_MANGLED_0; /* of UDP 0 is none */

		if (pseudo(skb, check, d->v6, sum, flags))
			return -1;
		if (bpf_l4_csum_replace(skb, check, old_port, port, flags | 2))
			return -1;
		if (bpf_skb_store_bytes(skb, d->transport + (side == SOURCE ? 0 : 2), &port, 2, 0))
			return -1;
	} else if (d->part != PART_LATER && d->protocol == IPPROTO_ICMPV6) {
		if (pseudo(skb, d->transport + 2, true, sum, 0))
			return -1;
	}
	if (!d->v6 && bpf_l3_csum_replace(skb, d->at + 10, 0, sum, 0))
		return -1;
	return store_address(skb, d, side, a);
}

/* The same within the packet that an ICMP error quotes; its own checksums too, where they
 * are quoted. */
static __always_inline int requote(struct __sk_buff *skb, const struct datagram *error, struct datagram *q,
				   enum side side, struct address *a, __u16 port)
{
	__u32 change = sum_address(q->v6, side == SOURCE ? &q->source : &q->destination, a);
	__u16 old_port = side == SOURCE ? q->from : q->to;
	__u64 inside = sum16(change, old_port, port); /* what q's own checksum is to even out */
	__u64 sum = inside;                           /* what that of the error is to */
	__u32 check = q->transport + (q->protocol == IPPROTO_TCP ? 16 : 6);
	__u16 old, new;

	if (is4(a) == q->v6)
		return -1;
	if (!q->v6) {
		if (bpf_skb_load_bytes(skb, q->at + 10, &old, 2))
			return -1;
		new = ~fold(sum16(change, 0, ~old));
		sum = sum16(sum, old, new);
		if (bpf_skb_store_bytes(skb, q->at + 10, &new, 2, 0))
			return -1;
	}
	if (check + 2 <= error->end && !bpf_skb_load_bytes(skb, check, &old, 2) &&
	    (q->protocol == IPPROTO_TCP || old)) {
		new = ~fold(sum16(inside, 0, ~old));
		sum = sum16(sum, old, new);
		if (bpf_skb_store_bytes(skb, check, &new, 2, 0))
			return -1;
	}
	if (bpf_skb_store_bytes(skb, q->transport + (side == SOURCE ? 0 : 2), &port, 2, 0))
		return -1;
	if (store_address(skb, q, side, a))
		return -1;
	return bpf_l4_csum_replace(skb, error->transport + 2, 0, fold(sum), 0);
}
