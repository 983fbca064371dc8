/* Outer headers: IP in IP (RFC 2003, RFC 2473, RFC 4213) and Geneve (RFC 8926). */
#pragma once

#include "../lib/count.h"
#include "../lib/header.h"
#include "../lib/parse.h"
#include "../lib/route.h"
#include "maps.h"
#include "row.h"

#define OPTION_ONE (sizeof(struct hop_option) - (HOPS - 1) * sizeof(__u64))

/* Writes UDP, Geneve and option headers. bytes is of all that follows the UDP header. */
static __always_inline void write_geneve(void *at, const struct turns *t, int one, __u8 version, __u64 hash,
					 __u32 bytes)
{
	__u32 option = one ? OPTION_ONE : sizeof(struct hop_option);
	/* The source port carries the flow's hash to routers on the way (RFC 8926, 3.3). No
	 * checksum: RFC 6935 and 6936 allow it over IPv6, the inner headers have their own. */
	*(__be16 *)at = bpf_htons(0xc000 | (hash >> 48 & 0x3fff));
	*(__be16 *)(at + 2) = bpf_htons(GENEVE_PORT);
	*(__be16 *)(at + 4) = bpf_htons(sizeof(struct udphdr) + bytes);
	*(__be16 *)(at + 6) = 0;
	struct geneve *g = at + sizeof(struct udphdr);
	g->options = option / 4;
	g->flags = GENEVE_CRITICAL;
	g->protocol = version == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	g->vni = bpf_htonl(LB_VNI << 8);
	void *o = g + 1;
	*(__u32 *)o = bpf_htons(HOP_CLASS) | HOP_TYPE << 16 | (option / 4 - 1) << 24;
	*(__u32 *)(o + 4) = (__u32)t->count << 8;
	*(__u64 *)(o + 8) = t->ids[0];
	if (one)
		return;
	*(__u64 *)(o + 16) = t->ids[1];
	*(__u64 *)(o + 24) = t->ids[2];
}

/* Writes everything between a link header and the packet, to at. t is null for IP in IP;
 * nh is null when the backend is at this machine; one says that t has one id. */
static __always_inline int write_outer(const struct packet *p, void *at, void *end, const struct backend *b,
				       const struct next_hop *nh, const struct turns *t, int one, int outer4,
				       __u64 hash)
{
	__u32 inside = 0;
	if (t)
		inside = sizeof(struct udphdr) + sizeof(struct geneve) + (one ? OPTION_ONE : sizeof(struct hop_option));
	__u32 room = inside + (outer4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	__u8 protocol = t ? IPPROTO_UDP : p->version == 4 ? IPPROTO_IPIP : IPPROTO_IPV6;
	__u32 length = room + p->length;
	if (at + room > end)
		return -REASON_INTERNAL;
	if (outer4) {
		__u32 source = nh ? nh->source4 : 0;
		if (unlikely(!source)) {
			struct settings *s = setting();
			source = s ? s->tunnel4.words[3] : 0;
		}
		write_ip4(at, source, b->remote.words[3], protocol, p->tos, length);
		at += sizeof(struct iphdr);
	} else {
		const struct address *source = nh ? &nh->source : 0;
		if (unlikely(!source || !(source->halves[0] | source->halves[1]))) {
			struct settings *s = setting();
			if (!s)
				return -REASON_INTERNAL;
			source = &s->tunnel6;
		}
		write_ip6(at, source, &b->remote, protocol, p->tos, hash >> 44, length);
		at += sizeof(struct ipv6hdr);
	}
	if (t)
		write_geneve(at, t, one, p->version, hash, inside - sizeof(struct udphdr) + p->length);
	return 0;
}

/* Bytes that encapsulation adds. */
static __always_inline __u32 encap_room(const struct turns *t, int outer4)
{
	__u32 room = outer4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	if (t)
		room += sizeof(struct udphdr) + sizeof(struct geneve) +
			(t->count == 1 ? OPTION_ONE : sizeof(struct hop_option));
	return room;
}

/* Bytes that Geneve adds at most: what clients are told of the way must not depend on what a
 * load balancer knows of a flow. */
static __always_inline __u32 encap_most(int outer4)
{
	return (outer4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) + sizeof(struct udphdr) +
	       sizeof(struct geneve) + sizeof(struct hop_option);
}

/* Puts the packet into another one and sends it to a next hop. Returns a verdict or a
 * reason, negative. */
static __always_inline int encap_as(struct packet *p, const struct backend *b, const struct next_hop *nh,
				    const struct turns *t, int one, int outer4, __u64 hash)
{
	__u32 room = outer4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	if (t)
		room += sizeof(struct udphdr) + sizeof(struct geneve) + (one ? OPTION_ONE : sizeof(struct hop_option));
	__u32 link = link_size(nh);
	decrement_ttl(p);
	if (bpf_xdp_adjust_head(p->xdp, (int)p->link - (int)link - (int)room))
		return -REASON_NO_HEADROOM;
	void *data = (void *)(long)p->xdp->data;
	void *end = (void *)(long)p->xdp->data_end;
	if (data + sizeof(struct ethhdr) + sizeof(struct vlan_tag) > end)
		return -REASON_INTERNAL;
	write_link(data, nh, outer4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
	int bad = write_outer(p, data + link, end, b, nh, t, one, outer4, hash);
	return bad ? bad : leave(p->xdp, nh);
}

static __always_inline int encap_ipip(struct packet *p, const struct backend *b, const struct next_hop *nh, int outer4)
{
	return outer4 ? encap_as(p, b, nh, 0, 0, 1, 0) : encap_as(p, b, nh, 0, 0, 0, 0);
}

static __always_inline int encap_geneve(struct packet *p, const struct backend *b, const struct next_hop *nh,
					const struct turns *t, int outer4, __u64 hash)
{
	if (t->count == 1)
		return outer4 ? encap_as(p, b, nh, t, 1, 1, hash) : encap_as(p, b, nh, t, 1, 0, hash);
	return outer4 ? encap_as(p, b, nh, t, 0, 1, hash) : encap_as(p, b, nh, t, 0, 0, hash);
}

/* The same for a backend at this machine: the packet becomes what would have come over the
 * wire, under the link header that it came with, and goes up. */
static __noinline int encap_here(struct packet *p, const struct backend *b, const struct turns *t, __u64 hash)
{
	int outer4 = is4(&b->remote);
	__u32 link = p->link;
	__be16 type = outer4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__u8 before[LINK_MAX + 2];
	void *data = (void *)(long)p->xdp->data;
	if (data + LINK_MAX > p->end) /* there is an IP header at least */
		return -REASON_INTERNAL;
	__builtin_memcpy(before, data, LINK_MAX);
	decrement_ttl(p);
	if (bpf_xdp_adjust_head(p->xdp, -(int)encap_room(t, outer4)))
		return -REASON_NO_HEADROOM;
	data = (void *)(long)p->xdp->data;
	void *end = (void *)(long)p->xdp->data_end;
	if (data + LINK_MAX > end)
		return -REASON_INTERNAL;
	__builtin_memcpy(data, before, LINK_MAX);
	if (link == 14)
		*(__be16 *)(data + 12) = type;
	else if (link == 18)
		*(__be16 *)(data + 16) = type;
	else if (link == 22)
		*(__be16 *)(data + 20) = type;
	else
		return -REASON_INTERNAL;
	data += link;
	int bad = 0;
	if (t->count == 1)
		bad = outer4 ? write_outer(p, data, end, b, 0, t, 1, 1, hash)
			     : write_outer(p, data, end, b, 0, t, 1, 0, hash);
	else
		bad = outer4 ? write_outer(p, data, end, b, 0, t, 0, 1, hash)
			     : write_outer(p, data, end, b, 0, t, 0, 0, hash);
	return bad ? bad : leave_here(p->xdp);
}
