/* IP packets inside an skb, at any offset: as they are, in a tunnel, or quoted by an ICMP
 * error. Everything is read by bpf_skb_load_bytes, which checks bounds and also reads
 * what is not in the linear part. */
#pragma once

#include <stdbool.h>

#include "maps.h"
#include "parse.h"

/* tcx programs are attached to devices with Ethernet headers. A VLAN tag is never in the
 * packet: the kernel keeps it beside the skb on both ways. */
#define LINK_HEADER 14

enum part { PART_WHOLE, PART_FIRST, PART_LATER };

struct datagram {
	struct address source;
	struct address destination;
	__u32 at;        /* of the IP header in the skb */
	__u32 transport; /* of what follows the IP headers */
	__u32 end;       /* of what the IP header says; the skb may be shorter or padded */
	__u32 id;        /* of its fragments */
	__u16 from;      /* ports, network byte order; 0 where there are none */
	__u16 to;
	__u8 v6;
	__u8 protocol;
	__u8 part;  /* enum part */
	__u8 flags; /* of TCP */
	__u8 type;  /* of ICMP */
	__u8 zero[3];
};

static __always_inline bool is_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/* Errors only: echoes and neighbour discovery speak of no other packet. */
static __always_inline bool is_error(const struct datagram *d)
{
	if (d->part == PART_LATER)
		return false;
	if (d->protocol == IPPROTO_ICMP)
		return d->type == ICMP_DEST_UNREACH || d->type == ICMP_TIME_EXCEEDED || d->type == ICMP_PARAMETERPROB;
	return d->protocol == IPPROTO_ICMPV6 && d->type < ICMPV6_ECHO_REQUEST;
}

static __always_inline int read_v4(struct __sk_buff *skb, struct datagram *d)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, d->at, &ip, sizeof(ip)))
		return REASON_TRUNCATED;
	if (ip.version != 4 || ip.ihl < 5 || bpf_ntohs(ip.tot_len) < ip.ihl * 4)
		return REASON_BAD_HEADER;
	d->source = address4(ip.saddr);
	d->destination = address4(ip.daddr);
	d->transport = d->at + ip.ihl * 4;
	d->end = d->at + bpf_ntohs(ip.tot_len);
	d->protocol = ip.protocol;
	d->id = ip.id;
	if (ip.frag_off & bpf_htons(0x1fff))
		d->part = PART_LATER;
	else if (ip.frag_off & bpf_htons(0x2000))
		d->part = PART_FIRST;
	return 0;
}

/* Steps over one extension header. Returns 0, a reason, or -1 when there is none. */
static __always_inline int read_extension(struct __sk_buff *skb, struct datagram *d)
{
	struct {
		__u8 next;
		__u8 length;
		__u16 offset;
		__u32 id;
	} x;

	if (d->protocol != IPPROTO_HOPOPTS && d->protocol != IPPROTO_ROUTING && d->protocol != IPPROTO_DSTOPTS &&
	    d->protocol != IPPROTO_FRAGMENT)
		return -1;
	if (bpf_skb_load_bytes(skb, d->transport, &x, sizeof(x)))
		return REASON_TRUNCATED;
	if (d->protocol == IPPROTO_FRAGMENT) {
		d->id = x.id;
		if (x.offset & bpf_htons(0xfff8))
			d->part = PART_LATER;
		else if (x.offset & bpf_htons(1))
			d->part = PART_FIRST;
		d->transport += 8;
	} else {
		d->transport += (x.length + 1) * 8;
	}
	d->protocol = x.next;
	return 0;
}

static __always_inline int read_v6(struct __sk_buff *skb, struct datagram *d)
{
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, d->at, &ip, sizeof(ip)))
		return REASON_TRUNCATED;
	if (ip.version != 6)
		return REASON_BAD_HEADER;
	__builtin_memcpy(&d->source, &ip.saddr, sizeof(d->source));
	__builtin_memcpy(&d->destination, &ip.daddr, sizeof(d->destination));
	d->transport = d->at + sizeof(ip);
	d->end = d->at + sizeof(ip) + bpf_ntohs(ip.payload_len);
	d->protocol = ip.nexthdr;
	for (int i = 0; i < EXTENSIONS && d->part != PART_LATER; i++) {
		int r = read_extension(skb, d);

		if (r < 0)
			return 0;
		if (r)
			return r;
	}
	if (d->part == PART_LATER) /* what follows its header is payload */
		return 0;
	return is_ports(d->protocol) || d->protocol == IPPROTO_ICMPV6 ? 0 : REASON_BAD_EXTENSION;
}

/* Reads the IP headers at offset at and the ports, as far as there are any. Of a packet
 * that is quoted only the first 8 bytes after the IP headers need to be there. Returns 0
 * or a reason. */
static __always_inline int read_datagram(struct __sk_buff *skb, __u32 at, bool v6, bool quoted, struct datagram *d)
{
	struct {
		__u16 from;
		__u16 to;
		__u32 seq;
		__u32 ack;
		__u8 offset;
		__u8 flags;
		__u16 window;
	} tcp;
	int r;

	__builtin_memset(d, 0, sizeof(*d));
	d->at = at;
	d->v6 = v6;
	r = v6 ? read_v6(skb, d) : read_v4(skb, d);
	if (r || d->part == PART_LATER)
		return r;
	if (is_ports(d->protocol)) {
		__u32 size = d->protocol == IPPROTO_TCP && !quoted ? 16 : 8;

		if (d->transport + size > d->end || bpf_skb_load_bytes(skb, d->transport, &tcp, 8))
			return REASON_TRUNCATED;
		d->from = tcp.from;
		d->to = tcp.to;
		if (size == 16) {
			if (bpf_skb_load_bytes(skb, d->transport, &tcp, 16))
				return REASON_TRUNCATED;
			d->flags = tcp.flags;
		}
	} else if (d->protocol == (v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP)) {
		if (d->transport + 8 > d->end || bpf_skb_load_bytes(skb, d->transport, &d->type, 1))
			return REASON_TRUNCATED;
	}
	return 0;
}

/* Reads the packet that an ICMP error speaks of. */
static __always_inline int read_quoted(struct __sk_buff *skb, const struct datagram *error, struct datagram *q)
{
	return read_datagram(skb, error->transport + 8, error->v6, true, q);
}
