/* Our tunnels (RFC 8926): reading their headers, taking them off, sending them on. */
#pragma once

#include "../lib/header.h"
#include "../lib/skb.h"
#include "maps.h"

struct tunnel {
	struct address remote; /* who sent it */
	__u64 ids[HOPS];
	__u32 length;   /* of all its headers, without the link header */
	__u32 payload;  /* of the outer IP packet */
	__u32 next_hop; /* towards remote */
	__u8 room;      /* for ids in the option */
	__u8 at;
	__u8 count;
	__u8 flags; /* enum hop_flag */
	__u8 ttl;
	__u8 tos;
	__u8 v6;     /* outside */
	__u8 inner;  /* IP version inside */
	__be16 port; /* UDP source port: the flow's */
	__u8 searched;
	__u8 zero[5];
};

#define GENEVE_CONTROL 0x80

/* The headers after the outer IP header, with the part of the option that is always there. */
struct tunnel_header {
	struct udphdr udp;
	struct geneve geneve;
	struct {
		__be16 option_class;
		__u8 type;
		__u8 length;
		__u8 at;
		__u8 count;
		__u8 flags;
		__u8 searched;
	} option;
};

#define NOT_OURS -1

static __always_inline int read_outer(struct __sk_buff *skb, struct tunnel *t, struct settings *s)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;
		if (bpf_skb_load_bytes(skb, LINK_HEADER, &ip, sizeof(ip)))
			return NOT_OURS;
		/* Ours have no options and are never in fragments. */
		if (ip.version != 4 || ip.ihl != 5 || ip.protocol != IPPROTO_UDP || (ip.frag_off & bpf_htons(0x3fff)) ||
		    ip.daddr != s->tunnel4.words[3] || bpf_ntohs(ip.tot_len) < sizeof(ip))
			return NOT_OURS;
		t->remote = address4(ip.saddr);
		t->length = sizeof(ip);
		t->payload = bpf_ntohs(ip.tot_len) - sizeof(ip);
		t->ttl = ip.ttl;
		t->tos = ip.tos;
		t->v6 = false;
		return 0;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;
		if (bpf_skb_load_bytes(skb, LINK_HEADER, &ip, sizeof(ip)))
			return NOT_OURS;
		struct address to = address6(&ip.daddr);
		if (ip.version != 6 || ip.nexthdr != IPPROTO_UDP || !same_address(&to, &s->tunnel6))
			return NOT_OURS;
		t->remote = address6(&ip.saddr);
		t->length = sizeof(ip);
		t->payload = bpf_ntohs(ip.payload_len);
		t->ttl = ip.hop_limit;
		t->tos = ip.priority << 4 | ip.flow_lbl[0] >> 4;
		t->v6 = true;
		return 0;
	}
	return NOT_OURS;
}

/* Reads the outer headers. Returns 0, NOT_OURS, or a reason. What is NOT_OURS may be
 * somebody else's tunnel and is left alone. here: the packet never was on a wire. */
static __always_inline int read_tunnel(struct __sk_buff *skb, struct tunnel *t, bool here)
{
	struct settings *s = setting();
	if (!s || read_outer(skb, t, s))
		return NOT_OURS;
	struct tunnel_header h;
	__u32 at = LINK_HEADER + t->length;
	if (bpf_skb_load_bytes(skb, at, &h, sizeof(h)))
		return NOT_OURS;
	if (h.udp.dest != bpf_htons(GENEVE_PORT) || (h.geneve.options & 0x3f) < 4 ||
	    h.option.option_class != bpf_htons(HOP_CLASS) || h.option.type != HOP_TYPE)
		return NOT_OURS;

	__u32 *machine = bpf_map_lookup_elem(&machines, &t->remote);
	if (!machine)
		return REASON_NOT_A_TUNNEL;
	if (!here && !unmarked && (same_address(&t->remote, &s->tunnel4) || same_address(&t->remote, &s->tunnel6)))
		return REASON_OWN_TUNNEL;
	t->next_hop = *machine;
	/* Version 0, data, a critical option, and only ours. Our machines send no checksum:
	 * the inner packet has one (RFC 8926, 3.3; RFC 6935). */
	__u8 words = h.option.length & 0x1f;
	if ((h.geneve.options & 0xc0) || (h.geneve.flags & (GENEVE_CONTROL | GENEVE_CRITICAL)) != GENEVE_CRITICAL ||
	    (h.geneve.vni & bpf_htonl(0xffffff00)) || (h.geneve.options & 0x3f) != words + 1 || h.udp.check)
		return REASON_BAD_TUNNEL;
	t->room = words == 3 ? 1 : words == 7 ? HOPS : 0;
	t->at = h.option.at;
	t->count = h.option.count;
	t->flags = h.option.flags;
	t->searched = h.option.searched;
	t->port = h.udp.source;
	if (!t->room || t->count > t->room || (!(t->flags & HOP_ECHO) && t->at >= t->count))
		return REASON_BAD_TUNNEL;
	__u32 headers = sizeof(h) + t->room * sizeof(__u64);
	if (bpf_ntohs(h.udp.len) != t->payload || t->payload < headers)
		return REASON_BAD_TUNNEL;
	if (LINK_HEADER + t->length + t->payload > skb->len)
		return REASON_TRUNCATED;
	if (bpf_skb_load_bytes(skb, at + sizeof(h), &t->ids[0], 8))
		return REASON_TRUNCATED;
	if (t->room == HOPS && bpf_skb_load_bytes(skb, at + sizeof(h) + 8, &t->ids[1], 16))
		return REASON_TRUNCATED;
	t->length += headers;
	if (h.geneve.protocol == bpf_htons(ETH_P_IP))
		t->inner = 4;
	else if (h.geneve.protocol == bpf_htons(ETH_P_IPV6))
		t->inner = 6;
	else
		return REASON_BAD_TUNNEL;
	return 0;
}

/* Takes the outer headers off. Offsets into the packet are less by t->length afterwards.
 * Returns 0 or a reason. */
static __always_inline int remove_tunnel(struct __sk_buff *skb, struct tunnel *t)
{
	bool v6 = t->inner == 6;
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	if (v6 != t->v6)
		flags |= v6 ? BPF_F_ADJ_ROOM_DECAP_L3_IPV6 : BPF_F_ADJ_ROOM_DECAP_L3_IPV4;
	if (bpf_skb_adjust_room(skb, -(__s32)t->length, BPF_ADJ_ROOM_MAC, flags))
		return REASON_INTERNAL;
	if (v6 != t->v6 && store_protocol(skb, v6))
		return REASON_INTERNAL;
	/* Congestion that was marked outside goes on inside, or is a loss (RFC 6040, 4.2). */
	if ((t->tos & 3) == 3 && !bpf_skb_ecn_set_ce(skb))
		return REASON_BAD_TUNNEL;
	bpf_set_hash_invalid(skb);
	return 0;
}

/* Writes the outer IP header anew: from this machine to another tunnel endpoint, of
 * whichever family. The option is t's. Returns 0 or a reason. */
static __always_inline int redirect_tunnel(struct __sk_buff *skb, struct tunnel *t, struct address *from,
					   struct address *to)
{
	bool v6 = !is4(to);
	if (v6 != t->v6) {
		if (bpf_skb_change_proto(skb, v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP), 0))
			return REASON_INTERNAL;
		if (store_protocol(skb, v6))
			return REASON_INTERNAL;
	}
	__u32 at = LINK_HEADER;
	if (v6) {
		struct ipv6hdr ip = {.version = 6, .nexthdr = IPPROTO_UDP, .hop_limit = t->ttl - 1};
		ip.priority = t->tos >> 4;
		ip.flow_lbl[0] = t->tos << 4;
		ip.payload_len = bpf_htons(t->payload);
		__builtin_memcpy(&ip.saddr, from, 16);
		__builtin_memcpy(&ip.daddr, to, 16);
		if (bpf_skb_store_bytes(skb, at, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM))
			return REASON_INTERNAL;
		at += sizeof(ip);
	} else {
		struct iphdr ip = {.version = 4, .ihl = 5, .ttl = t->ttl - 1, .protocol = IPPROTO_UDP, .tos = t->tos};
		ip.tot_len = bpf_htons(t->payload + sizeof(ip));
		ip.frag_off = bpf_htons(0x4000);
		ip.saddr = from->words[3];
		ip.daddr = to->words[3];
		ip.check = ~sum_ip4(&ip);
		if (bpf_skb_store_bytes(skb, at, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM))
			return REASON_INTERNAL;
		at += sizeof(ip);
	}
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
