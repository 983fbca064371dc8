/* The cursor over a packet, and the steps from the link header to the transport header.
 * Every step checks its bounds and returns 0, or the reason why the packet is bad,
 * negative. Nothing here changes a packet or looks at a map. */
#pragma once

/* linux/icmp.h asks for linux/if.h, which needs a C library for this target, for the sake of
 * one constant. */
#define _LINUX_IF_H
#define IFNAMSIZ 16
#include <linux/bpf.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"
#include "reason.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum packet_kind {
	KIND_WHOLE,          /* TCP or UDP with its ports */
	KIND_FRAGMENT_FIRST, /* the same, and more fragments follow */
	KIND_FRAGMENT_LATER, /* no ports */
	KIND_ICMP,           /* ICMP or ICMPv6; no ports */
	KIND_ICMP_ERROR,     /* about a packet of a flow: the fields of the flow are those of its packets to us */
	KIND_OTHER,          /* another protocol */
};

/* A packet and what was read of it. Pointers are good until the packet's room changes
 * (bpf_xdp_adjust_head and _tail, bpf_skb_adjust_room and the like). */
struct packet {
	struct xdp_md *xdp; /* null in tc programs */
	void *end;
	void *network;   /* IP header */
	void *transport; /* what follows the IP header and its extensions */
	struct address source;
	struct address destination;
	__u16 source_port; /* network byte order, as is the next */
	__u16 destination_port;
	__u16 length;   /* of the IP packet, bytes */
	__u16 header;   /* of them before transport */
	__u16 link;     /* bytes before the IP header: 14, with tags 18 or 22 */
	__u32 fragment; /* identification, as on the wire */
	__u8 version;   /* 4 or 6 */
	__u8 protocol;  /* IPPROTO_; of an ICMP error that of the flow */
	__u8 ttl;
	__u8 kind;      /* enum packet_kind */
	__u8 tcp_flags; /* byte 13 of the TCP header */
	__u8 tos;       /* DSCP and ECN */
};

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define LINK_MAX 22 /* a link header with two tags */

struct vlan_tag {
	__be16 tci;
	__be16 protocol; /* of what follows */
};

/* Wide loads from packets. Packets are not aligned, and the CPUs that run XDP do not mind;
 * a packed structure would be read byte by byte. */
static __always_inline __u32 load32(const void *at)
{
	return *(const __u32 *)at;
}

static __always_inline __u64 load64(const void *at)
{
	return *(const __u64 *)at;
}

static __always_inline struct address address4(__be32 a)
{
	struct address to;
	to.halves[0] = 0;
	to.words[2] = bpf_htonl(0xffff);
	to.words[3] = a;
	return to;
}

static __always_inline struct address address6(const void *at)
{
	struct address to;
	to.halves[0] = load64(at);
	to.halves[1] = load64(at + 8);
	return to;
}

static __always_inline int is4(const struct address *a)
{
	return a->halves[0] == 0 && a->words[2] == bpf_htonl(0xffff);
}

static __always_inline int same_address(const struct address *a, const struct address *b)
{
	return a->halves[0] == b->halves[0] && a->halves[1] == b->halves[1];
}

/* The one's complement sum of 32-bit words, folded to 16 bits. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* Sum of an IPv4 header without options: 0xffff when its checksum is right. */
static __always_inline __u16 sum_ip4(const void *header)
{
	return fold((__u64)load32(header) + load32(header + 4) + load32(header + 8) + load32(header + 12) +
		    load32(header + 16));
}

/* Steps past the link header and up to two tags (IEEE 802.1Q, 802.1ad). Returns the
 * protocol that follows, network byte order, or 0 when there is none to read. */
static __always_inline __be16 parse_link(struct packet *p, void *data)
{
	struct ethhdr *eth = data;
	if (data + sizeof(*eth) > p->end)
		return 0;
	__be16 protocol = eth->h_proto;
	p->network = data + sizeof(*eth);
	p->link = sizeof(*eth);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		struct vlan_tag *tag = p->network;
		if ((void *)(tag + 1) > p->end)
			return 0;
		protocol = tag->protocol;
		p->network += sizeof(*tag);
		p->link += sizeof(*tag);
	}
	return protocol;
}

/* Reads addresses only: enough to see whether the packet is ours to judge. */
static __always_inline int parse_addresses(struct packet *p, __be16 protocol)
{
	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = p->network;
		if ((void *)(ip + 1) > p->end)
			return -REASON_TRUNCATED;
		p->version = 4;
		p->source = address4(ip->saddr);
		p->destination = address4(ip->daddr);
		return 0;
	}
	if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = p->network;
		if ((void *)(ip + 1) > p->end)
			return -REASON_TRUNCATED;
		p->version = 6;
		p->source = address6(&ip->saddr);
		p->destination = address6(&ip->daddr);
		return 0;
	}
	return -REASON_UNSUPPORTED_PROTOCOL;
}

#define OPTION_END 0
#define OPTION_NOTHING 1
#define OPTION_LOOSE_ROUTE 131
#define OPTION_STRICT_ROUTE 137

/* Are the options of an IPv4 header of so many bytes where they say, and none that sends
 * the packet elsewhere (RFC 791, 3.1; RFC 7126, 4.3 and 4.4)? */
__noinline int sound_options(struct xdp_md *xdp, __u32 link, __u32 size)
{
	void *header = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	if (link > LINK_MAX)
		return 0;
	header += link;
	__u32 at = sizeof(struct iphdr);
	for (int i = 0; i < 40; i++) {
		/* The verifier knows no more than this, so that it need not follow every way here. */
		asm volatile("" : "+r"(at));
		at &= 63;
		if (at >= size)
			return at == size;
		__u8 *option = header + at;
		if ((void *)(option + 2) > end)
			return 0;
		if (option[0] == OPTION_END)
			return 1;
		if (option[0] == OPTION_NOTHING) {
			at++;
			continue;
		}
		if (option[0] == OPTION_LOOSE_ROUTE || option[0] == OPTION_STRICT_ROUTE)
			return 0;
		if (option[1] < 2 || at + option[1] > size)
			return 0;
		at += option[1];
	}
	return at == size;
}

/* As the number of available bytes: the packet is quoted in an ICMP error, is cut off
 * anywhere, and its header may have been rewritten on the way. */
#define QUOTED 0xffffffff

/* Reads the rest of the IPv4 header at p->network, with options. available is how many
 * bytes the frame has from there. */
static __always_inline int parse_ip4(struct packet *p, __u32 available)
{
	struct iphdr *ip = p->network;
	if ((void *)(ip + 1) > p->end)
		return -REASON_TRUNCATED;
	__u32 size = ip->ihl * 4;
	if (ip->version != 4 || size < sizeof(*ip))
		return -REASON_BAD_HEADER;
	p->length = bpf_ntohs(ip->tot_len);
	if (p->length < size)
		return -REASON_BAD_HEADER;
	if (p->length > available)
		return -REASON_TRUNCATED;
	__u64 sum = 0;
	void *at = p->network;
	for (__u32 i = 0; i < 60; i += 4) {
		if (i >= size)
			break;
		if (at + i + 4 > p->end)
			return -REASON_TRUNCATED;
		sum += load32(at + i);
	}
	if (available != QUOTED) {
		if (fold(sum) != 0xffff)
			return -REASON_BAD_CHECKSUM;
	}
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	p->protocol = ip->protocol;
	p->header = size;
	p->transport = p->network + size;
	p->kind = KIND_WHOLE;
	__u16 offset = bpf_ntohs(ip->frag_off);
	if (unlikely(offset & 0x8000)) /* the evil bit (RFC 3514) is reserved: zero (RFC 791) */
		return -REASON_BAD_HEADER;
	if (offset & 0x3fff) {
		__u32 payload = p->length - size;
		if ((offset & 0x2000) && (payload & 7))
			return -REASON_BAD_HEADER;
		if ((offset & 0x1fff) * 8 + payload > 65535)
			return -REASON_BAD_HEADER;
		p->fragment = ip->id;
		p->kind = offset & 0x1fff ? KIND_FRAGMENT_LATER : KIND_FRAGMENT_FIRST;
	}
	return 0;
}

#define EXTENSIONS 6    /* headers that are stepped over at most */
#define HEADER_MAX 1024 /* bytes of them and the IP header; who sends more means no good */

/* Reads the rest of the IPv6 header at p->network and steps over extension headers
 * (RFC 8200, 4). */
static __always_inline int parse_ip6(struct packet *p, __u32 available)
{
	struct ipv6hdr *ip = p->network;
	if ((void *)(ip + 1) > p->end)
		return -REASON_TRUNCATED;
	if (ip->version != 6)
		return -REASON_BAD_HEADER;
	__u32 length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (length > available)
		return -REASON_TRUNCATED;
	if (length > 65535) /* as a length it would be short, and nobody sends it */
		return -REASON_BAD_HEADER;
	p->length = length;
	p->ttl = ip->hop_limit;
	p->tos = bpf_ntohl(load32(ip)) >> 20;
	p->kind = KIND_WHOLE;
	__u8 next = ip->nexthdr;
	__u32 offset = sizeof(*ip);
	for (int i = 0; i < EXTENSIONS + 1; i++) {
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
		    next != IPPROTO_FRAGMENT) {
			if (offset > length)
				return -REASON_TRUNCATED;
			p->protocol = next;
			p->header = offset;
			p->transport = p->network + offset;
			return 0;
		}
		if (i == EXTENSIONS || (next == IPPROTO_HOPOPTS && i > 0))
			return -REASON_BAD_EXTENSION;
		__u8 *header = p->network + offset;
		if ((void *)(header + 8) > p->end || offset + 8 > length)
			return -REASON_TRUNCATED;
		if (next == IPPROTO_FRAGMENT) {
			if (p->kind != KIND_WHOLE)
				return -REASON_BAD_EXTENSION;
			__u16 where = bpf_ntohs(*(__be16 *)(header + 2));
			__u32 payload = length - offset - 8;
			if (((where & 1) && (payload & 7)) || (where & 0xfff8) + payload > 65535)
				return -REASON_BAD_HEADER;
			/* Neither offset nor more to come: an atomic fragment is whole (RFC 6946). */
			if (where & 0xfff9) {
				p->fragment = load32(header + 4);
				p->kind = where & 0xfff8 ? KIND_FRAGMENT_LATER : KIND_FRAGMENT_FIRST;
			}
			next = header[0];
			offset += 8;
			if (p->kind == KIND_FRAGMENT_LATER) {
				/* What follows is the middle of something, whatever it looks like. */
				p->protocol = next;
				p->header = offset;
				p->transport = p->network + offset;
				return 0;
			}
			continue;
		}
		/* A routing header that is not used up sends the packet elsewhere (RFC 5095). */
		if (next == IPPROTO_ROUTING && header[3] != 0)
			return -REASON_BAD_EXTENSION;
		next = header[0];
		offset += 8 + header[1] * 8;
		if (offset > HEADER_MAX)
			return -REASON_BAD_EXTENSION;
	}
	return -REASON_BAD_EXTENSION;
}

/* The path that nearly all packets take: no tags, no IP options or extension headers, no
 * fragment, TCP or UDP, nothing wrong. Returns 0 and has read nothing when the packet is
 * not so. */
static __always_inline int parse_plain(struct packet *p, void *data)
{
	struct ethhdr *eth = data;
	p->network = data + sizeof(*eth);
	p->link = sizeof(*eth);
	p->kind = KIND_WHOLE;
	p->fragment = 0;
	p->tcp_flags = 0;
	if (p->network + sizeof(struct iphdr) + sizeof(struct udphdr) > p->end)
		return 0;
	if (likely(eth->h_proto == bpf_htons(ETH_P_IP))) {
		struct iphdr *ip = p->network;
		if (*(__u8 *)p->network != 0x45 || (ip->frag_off & ~bpf_htons(0x4000)) || sum_ip4(ip) != 0xffff)
			return 0;
		p->version = 4;
		p->length = bpf_ntohs(ip->tot_len);
		p->ttl = ip->ttl;
		p->tos = ip->tos;
		p->protocol = ip->protocol;
		p->source = address4(ip->saddr);
		p->destination = address4(ip->daddr);
		p->header = sizeof(*ip);
		p->transport = p->network + sizeof(*ip);
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = p->network;
		if ((void *)(ip + 1) + sizeof(struct udphdr) > p->end)
			return 0;
		__u32 word = bpf_ntohl(load32(ip));
		__u32 length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		if (word >> 28 != 6 || length > 65535)
			return 0;
		p->version = 6;
		p->length = length;
		p->ttl = ip->hop_limit;
		p->tos = word >> 20;
		p->protocol = ip->nexthdr;
		p->source = address6(&ip->saddr);
		p->destination = address6(&ip->daddr);
		p->header = sizeof(*ip);
		p->transport = p->network + sizeof(*ip);
	} else {
		return 0;
	}
	if (p->network + p->length > p->end)
		return 0;
	__u32 left = p->length - p->header;
	if (likely(p->protocol == IPPROTO_TCP)) {
		struct tcphdr *tcp = p->transport;
		if ((void *)(tcp + 1) > p->end)
			return 0;
		__u32 size = (((__u8 *)tcp)[12] >> 4) * 4;
		/* An IP header that promises less than itself makes left huge, and signed less than 0. */
		if (size < sizeof(*tcp) || (int)size > (int)left)
			return 0;
		p->tcp_flags = ((__u8 *)tcp)[13];
		p->source_port = tcp->source;
		p->destination_port = tcp->dest;
		return 1;
	}
	if (p->protocol == IPPROTO_UDP) {
		struct udphdr *udp = p->transport;
		__u32 size = bpf_ntohs(udp->len);
		if (size < sizeof(*udp) || (int)size > (int)left)
			return 0;
		p->source_port = udp->source;
		p->destination_port = udp->dest;
		return 1;
	}
	return 0;
}

/* Reads ports at p->transport. */
static __always_inline int parse_transport(struct packet *p)
{
	if (p->kind == KIND_FRAGMENT_LATER)
		return 0;
	__u32 left = p->length - p->header;
	if (p->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = p->transport;
		if ((void *)(tcp + 1) > p->end || left < sizeof(*tcp))
			return -REASON_TRUNCATED;
		__u32 size = tcp->doff * 4;
		if (size < sizeof(*tcp))
			return -REASON_BAD_HEADER;
		if (size > left)
			return -REASON_TRUNCATED;
		p->source_port = tcp->source;
		p->destination_port = tcp->dest;
		p->tcp_flags = ((__u8 *)tcp)[13];
		return 0;
	}
	if (p->protocol == IPPROTO_UDP) {
		struct udphdr *udp = p->transport;
		if ((void *)(udp + 1) > p->end || left < sizeof(*udp))
			return -REASON_TRUNCATED;
		__u32 size = bpf_ntohs(udp->len);
		if (size < sizeof(*udp))
			return -REASON_BAD_HEADER;
		if (size > left && p->kind == KIND_WHOLE)
			return -REASON_TRUNCATED;
		p->source_port = udp->source;
		p->destination_port = udp->dest;
		return 0;
	}
	if (p->kind == KIND_WHOLE &&
	    ((p->version == 4 && p->protocol == IPPROTO_ICMP) || (p->version == 6 && p->protocol == IPPROTO_ICMPV6)))
		p->kind = KIND_ICMP;
	else
		p->kind = KIND_OTHER;
	return 0;
}

enum { NOT_IP = 1 };

/* Reads a packet from its link header, or, at not 0, the IP packet that begins at that
 * byte, quoted in an ICMP error. Returns 0; NOT_IP; or a reason, negative, and addresses
 * are read. Pointers are not set: a global function may not return them, and as it is one
 * the verifier does not follow each of its paths through all that comes after. See point. */
__noinline int read_packet(struct xdp_md *xdp, struct packet *out, __u32 at)
{
	if (!out)
		return -REASON_INTERNAL;
	struct packet p = {.end = (void *)(long)xdp->data_end};
	void *data = (void *)(long)xdp->data;
	__be16 protocol = 0;
	__u32 available = QUOTED;
	if (!at) {
		protocol = parse_link(&p, data);
		available = bpf_xdp_get_buff_len(xdp) - p.link;
	} else if (at < 2 * HEADER_MAX) {
		__u8 *first = data + at;
		if ((void *)(first + 1) > p.end)
			return NOT_IP;
		p.network = first;
		protocol = *first >> 4 == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	}
	if (!protocol || parse_addresses(&p, protocol))
		return NOT_IP;
	int bad = p.version == 4 ? parse_ip4(&p, available) : parse_ip6(&p, available);
	if (!bad && at) {
		/* Of a packet that is quoted there may be no more than ports. */
		if (p.kind != KIND_FRAGMENT_LATER) {
			if (p.transport + 4 > p.end)
				bad = -REASON_TRUNCATED;
			else
				*(__u32 *)&p.source_port = load32(p.transport);
		}
	} else if (!bad) {
		bad = parse_transport(&p);
		if (p.version == 4 && p.header > sizeof(struct iphdr) && !sound_options(xdp, p.link, p.header))
			bad = -REASON_BAD_HEADER;
	}
	out->source = p.source;
	out->destination = p.destination;
	out->source_port = p.source_port;
	out->destination_port = p.destination_port;
	out->length = p.length;
	out->header = p.header;
	out->link = p.link;
	out->fragment = p.fragment;
	out->version = p.version;
	out->protocol = p.protocol;
	out->ttl = p.ttl;
	out->kind = p.kind;
	out->tcp_flags = p.tcp_flags;
	out->tos = p.tos;
	return bad;
}

/* Sets the pointers of a packet that was read. Whoever follows them checks them. */
static __always_inline int point(struct packet *p, struct xdp_md *xdp)
{
	if (p->link > LINK_MAX || p->header > HEADER_MAX)
		return -REASON_INTERNAL;
	p->xdp = xdp;
	p->end = (void *)(long)xdp->data_end;
	p->network = (void *)(long)xdp->data + p->link;
	p->transport = p->network + p->header;
	return 0;
}
