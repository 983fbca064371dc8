/* Tunnels that end at this machine (RFC 8926): their outer headers are read, taken off, and
 * written anew. What an option means, and what is inside, is the business of those who consume
 * the packet. */
#pragma once

#include "count.h"
#include "header.h"
#include "skb.h"

/* What was read of the outer IP header. */
struct outer {
	struct address remote; /* who sent it */
	__u32 length;          /* of the header itself */
	__u32 payload;         /* of the packet, without the header */
	__u8 ttl;
	__u8 tos;
	__u8 v6;
	__u8 zero;
};

/* The headers after the outer IP header, with the first bytes of what follows: an option, if
 * there is one. */
struct tunnel_header {
	struct udphdr udp;
	struct geneve geneve;
	__u8 next[8];
};

/* The network that a packet belongs to; host byte order. */
static __always_inline __u32 vni_of(const struct tunnel_header *h)
{
	return bpf_ntohl(h->geneve.vni) >> 8;
}

/* Bytes of all options. */
static __always_inline __u32 options_of(const struct tunnel_header *h)
{
	return (h->geneve.options & 0x3f) * 4;
}

/* Reads the outer IP header of what is sent to a tunnel endpoint of this machine. Returns false
 * for all else. */
static __always_inline bool read_outer(struct __sk_buff *skb, struct settings *s, struct outer *o)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;
		if (bpf_skb_load_bytes(skb, LINK_HEADER, &ip, sizeof(ip)))
			return false;
		/* Ours have no options and are never in fragments. */
		if (ip.version != 4 || ip.ihl != 5 || ip.protocol != IPPROTO_UDP || (ip.frag_off & bpf_htons(0x3fff)) ||
		    ip.daddr != s->tunnel4.words[3] || bpf_ntohs(ip.tot_len) < sizeof(ip))
			return false;
		o->remote = address4(ip.saddr);
		o->length = sizeof(ip);
		o->payload = bpf_ntohs(ip.tot_len) - sizeof(ip);
		o->ttl = ip.ttl;
		o->tos = ip.tos;
		o->v6 = false;
		return true;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;
		if (bpf_skb_load_bytes(skb, LINK_HEADER, &ip, sizeof(ip)))
			return false;
		struct address to = address6(&ip.daddr);
		if (ip.version != 6 || ip.nexthdr != IPPROTO_UDP || !same_address(&to, &s->tunnel6))
			return false;
		o->remote = address6(&ip.saddr);
		o->length = sizeof(ip);
		o->payload = bpf_ntohs(ip.payload_len);
		o->ttl = ip.hop_limit;
		o->tos = ip.priority << 4 | ip.flow_lbl[0] >> 4;
		o->v6 = true;
		return true;
	}
	return false;
}

/* Reads the outer headers of a packet that comes out of a tunnel at this machine. Returns false
 * for all else. The Geneve header is not judged. */
static __always_inline bool read_tunnel(struct __sk_buff *skb, struct outer *o, struct tunnel_header *h)
{
	struct settings *s = setting();
	return s && read_outer(skb, s, o) && !bpf_skb_load_bytes(skb, LINK_HEADER + o->length, h, sizeof(*h)) &&
	       h->udp.dest == bpf_htons(GENEVE_PORT);
}

/* Takes all outer headers off, which are length bytes. v6 says what is inside. Offsets into the
 * packet are less by length afterwards. Returns 0 or a reason. */
static __always_inline int remove_outer(struct __sk_buff *skb, const struct outer *o, __u32 length, bool v6)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	if (v6 != o->v6)
		flags |= v6 ? BPF_F_ADJ_ROOM_DECAP_L3_IPV6 : BPF_F_ADJ_ROOM_DECAP_L3_IPV4;
	if (bpf_skb_adjust_room(skb, -(__s32)length, BPF_ADJ_ROOM_MAC, flags))
		return REASON_INTERNAL;
	if (v6 != o->v6 && store_protocol(skb, v6))
		return REASON_INTERNAL;
	/* Congestion that was marked outside goes on inside, or is a loss (RFC 6040, 4.2). */
	if ((o->tos & 3) == 3 && !bpf_skb_ecn_set_ce(skb))
		return REASON_BAD_TUNNEL;
	bpf_set_hash_invalid(skb);
	return 0;
}

/* Writes the outer IP header anew: from this machine to another tunnel endpoint, of whichever
 * family. at is set to where the UDP header is then. Returns 0 or a reason. */
static __always_inline int redirect_outer(struct __sk_buff *skb, const struct outer *o, struct address *from,
					  struct address *to, __u32 *at)
{
	bool v6 = !is4(to);
	if (v6 != o->v6) {
		if (bpf_skb_change_proto(skb, v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP), 0))
			return REASON_INTERNAL;
		if (store_protocol(skb, v6))
			return REASON_INTERNAL;
	}
	if (v6) {
		struct ipv6hdr ip = {.version = 6, .nexthdr = IPPROTO_UDP, .hop_limit = o->ttl - 1};
		ip.priority = o->tos >> 4;
		ip.flow_lbl[0] = o->tos << 4;
		ip.payload_len = bpf_htons(o->payload);
		__builtin_memcpy(&ip.saddr, from, 16);
		__builtin_memcpy(&ip.daddr, to, 16);
		*at = LINK_HEADER + sizeof(ip);
		return bpf_skb_store_bytes(skb, LINK_HEADER, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM) ? REASON_INTERNAL
												    : 0;
	}
	struct iphdr ip = {.version = 4, .ihl = 5, .ttl = o->ttl - 1, .protocol = IPPROTO_UDP, .tos = o->tos};
	ip.tot_len = bpf_htons(o->payload + sizeof(ip));
	ip.frag_off = bpf_htons(0x4000);
	ip.saddr = from->words[3];
	ip.daddr = to->words[3];
	ip.check = ~sum_ip4(&ip);
	*at = LINK_HEADER + sizeof(ip);
	return bpf_skb_store_bytes(skb, LINK_HEADER, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM) ? REASON_INTERNAL : 0;
}
