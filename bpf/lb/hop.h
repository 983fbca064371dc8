/* The load balancer's tunnels: the Geneve option that says whose turn it is, read and written. */
#pragma once

#include "../lib/tunnel.h"
#include "maps.h"

struct tunnel {
	struct outer outer;
	__u64 ids[HOPS];
	__u32 length;   /* of all outer headers, without the link header */
	__u32 next_hop; /* towards outer.remote */
	__u8 room;      /* for ids in the option */
	__u8 at;
	__u8 count;
	__u8 flags; /* enum hop_flag */
	__u8 inner; /* IP version inside */
	__u8 searched;
	__be16 port; /* UDP source port: the flow's */
};

/* The part of the option that is always there. */
struct hop_head {
	__be16 option_class;
	__u8 type;
	__u8 length;
	__u8 at;
	__u8 count;
	__u8 flags;
	__u8 searched;
};
_Static_assert(sizeof(struct hop_head) == sizeof(((struct tunnel_header *)0)->next), "read with the headers");

/* Is the first option the load balancer's? */
static __always_inline bool has_hops(const struct tunnel_header *h)
{
	const struct hop_head *option = (const void *)h->next;
	return options_of(h) >= 16 && option->option_class == bpf_htons(HOP_CLASS) && option->type == HOP_TYPE;
}

/* Reads a tunnel whose first option is the load balancer's. here: the packet never was on a
 * wire. Returns 0 or a reason. */
static __always_inline int read_hops(struct __sk_buff *skb, const struct outer *o, const struct tunnel_header *h,
				     bool here, struct tunnel *t)
{
	struct settings *s = setting();
	const struct hop_head *option = (const void *)h->next;
	__u32 *machine = bpf_map_lookup_elem(&machines, &o->remote);
	if (!machine)
		return REASON_NOT_A_TUNNEL;
	if (!s)
		return REASON_INTERNAL;
	if (!here && !unmarked && (same_address(&o->remote, &s->tunnel4) || same_address(&o->remote, &s->tunnel6)))
		return REASON_OWN_TUNNEL;
	t->outer = *o;
	t->next_hop = *machine;
	/* Version 0, data, a critical option, and only ours. Our machines send no checksum:
	 * the inner packet has one (RFC 8926, 3.3; RFC 6935). */
	__u8 words = option->length & 0x1f;
	if ((h->geneve.options & 0xc0) || (h->geneve.flags & (GENEVE_CONTROL | GENEVE_CRITICAL)) != GENEVE_CRITICAL ||
	    vni_of(h) != LB_VNI || options_of(h) != (words + 1) * 4 || h->udp.check)
		return REASON_BAD_TUNNEL;
	t->room = words == 3 ? 1 : words == 7 ? HOPS : 0;
	t->at = option->at;
	t->count = option->count;
	t->flags = option->flags;
	t->searched = option->searched;
	t->port = h->udp.source;
	if (!t->room || t->count > t->room || (!(t->flags & HOP_ECHO) && t->at >= t->count))
		return REASON_BAD_TUNNEL;
	__u32 headers = sizeof(*h) + t->room * sizeof(__u64);
	if (bpf_ntohs(h->udp.len) != o->payload || o->payload < headers)
		return REASON_BAD_TUNNEL;
	if (LINK_HEADER + o->length + o->payload > skb->len)
		return REASON_TRUNCATED;
	__u32 ids = LINK_HEADER + o->length + sizeof(*h);
	if (bpf_skb_load_bytes(skb, ids, &t->ids[0], 8))
		return REASON_TRUNCATED;
	if (t->room == HOPS && bpf_skb_load_bytes(skb, ids + 8, &t->ids[1], 16))
		return REASON_TRUNCATED;
	t->length = o->length + headers;
	if (h->geneve.protocol == bpf_htons(ETH_P_IP))
		t->inner = 4;
	else if (h->geneve.protocol == bpf_htons(ETH_P_IPV6))
		t->inner = 6;
	else
		return REASON_BAD_TUNNEL;
	return 0;
}

/* Takes the outer headers off. Offsets into the packet are less by t->length afterwards.
 * Returns 0 or a reason. */
static __always_inline int remove_tunnel(struct __sk_buff *skb, struct tunnel *t)
{
	return remove_outer(skb, &t->outer, t->length, t->inner == 6);
}

/* Sends the tunnel from this machine to another endpoint. The option is t's. Returns 0 or a
 * reason. */
static __always_inline int redirect_tunnel(struct __sk_buff *skb, struct tunnel *t, struct address *from,
					   struct address *to)
{
	__u32 at;
	int r = redirect_outer(skb, &t->outer, from, to, &at);
	if (r)
		return r;
	at += sizeof(struct udphdr) + sizeof(struct geneve) + 4;
	__u8 option[4] = {t->at, t->count, t->flags, t->searched};
	if (bpf_skb_store_bytes(skb, at, option, sizeof(option), BPF_F_RECOMPUTE_CSUM) ||
	    bpf_skb_store_bytes(skb, at + 4, &t->ids[0], 8, BPF_F_RECOMPUTE_CSUM))
		return REASON_INTERNAL;
	if (t->room == HOPS && bpf_skb_store_bytes(skb, at + 12, &t->ids[1], 16, BPF_F_RECOMPUTE_CSUM))
		return REASON_INTERNAL;
	bpf_set_hash_invalid(skb);
	return 0;
}
