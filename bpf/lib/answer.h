/* ICMP that programs answer packets with: senders are told when their packets are too large for
 * the way, or have come too far. */
#pragma once

#include "bucket.h"
#include "count.h"
#include "hash.h"
#include "header.h"
#include "parse.h"

/* How many answers a second the clients of one network get, at most. Networks share the buckets by
 * their hash: none of them takes the answers of all others. */
const volatile __u32 answers = 200;
#define ANSWER_BUCKETS 256 /* a power of two */
__u64 answers_full[ANSWER_BUCKETS];

/* The bucket of a client's network: of IPv4 a /24, of IPv6 a /56. */
static __always_inline __u64 *answer_bucket(const struct packet *p)
{
	__u64 network = p->version == 4 ? bpf_ntohl(p->source.words[3]) : bpf_be64_to_cpu(p->source.halves[0]);
	return &answers_full[hash_word(p->version, network >> 8) & (ANSWER_BUCKETS - 1)];
}

#define QUOTE 128 /* bytes of the packet in an answer, at most; a multiple of 4 */

/* The one's complement sum of bytes, a multiple of 4. */
static __always_inline __u64 sum_bytes(void *at, __u32 bytes)
{
	__u64 sum = 0;
#pragma unroll
	for (__u32 i = 0; i < bytes; i += 4)
		sum += load32(at + i);
	return sum;
}

/* The same of what is quoted, of which there may be less than QUOTE. */
static __always_inline __u64 sum_quote(void *at, void *end, __u32 bytes)
{
	__u64 sum = 0;
	for (__u32 i = 0; i < QUOTE; i += 4) {
		if (i >= bytes || at + i + 4 > end)
			break;
		sum += load32(at + i);
	}
	return sum;
}

struct answer4 {
	struct iphdr ip;
	struct icmphdr icmp;
};

struct answer6 {
	struct ipv6hdr ip;
	struct icmp6hdr icmp;
};

static __always_inline int turn_link(void *data)
{
	__u32 a = load32(data), c = load32(data + 6);
	__u16 b = *(__u16 *)(data + 4), d = *(__u16 *)(data + 10);
	*(__u32 *)data = c;
	*(__u16 *)(data + 4) = d;
	*(__u32 *)(data + 6) = a;
	*(__u16 *)(data + 10) = b;
	return 0;
}

/* How many bytes of the packet an answer quotes; 0: it is not to be answered. Errors are not
 * (RFC 1122, 3.2.2; RFC 4443, 2.4), nor are fragments that are not the first. */
static __always_inline __u32 quotable(const struct packet *p)
{
	__u32 length, least;
	if (p->version == 4) {
		struct iphdr *ip = p->network;
		if ((void *)(ip + 1) > p->end || ip->protocol == IPPROTO_ICMP || (ip->frag_off & bpf_htons(0x1fff)))
			return 0;
		length = bpf_ntohs(ip->tot_len);
		least = ip->ihl * 4 + sizeof(struct udphdr);
	} else {
		struct ipv6hdr *ip = p->network;
		if ((void *)(ip + 1) > p->end || ip->nexthdr == IPPROTO_ICMPV6)
			return 0;
		length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		least = sizeof(*ip) + sizeof(struct udphdr);
	}
	if (length > QUOTE)
		length = QUOTE;
	return length < least ? 0 : length & ~3u; /* checksums are summed by words */
}

/* Makes the packet the answer to itself, and sends it back. mtu is the size that fits the
 * way: fragmentation needed (RFC 1191) or packet too big (RFC 8201), from the address that the
 * packet was sent to, which is what firewalls on the way know of the flow; or 0: time exceeded, from the machine itself,
 * if it has an address of that family. */
static __noinline int answer(struct xdp_md *xdp, __u32 mtu)
{
	struct packet p = {.xdp = xdp, .end = (void *)(long)xdp->data_end};
	__be16 protocol = parse_link(&p, (void *)(long)xdp->data);
	if (parse_addresses(&p, protocol) || !spend_token(answer_bucket(&p), answers))
		return XDP_DROP;
	__u32 room = p.version == 4 ? sizeof(struct answer4) : sizeof(struct answer6);
	__u32 link = p.link, quote = quotable(&p);
	if (link > LINK_MAX || !quote)
		return XDP_DROP;
	struct settings *s = mtu ? 0 : setting();
	if (s) {
		struct address *own = p.version == 4 ? &s->tunnel4 : &s->tunnel6;
		if (own->halves[0] | own->halves[1])
			p.destination = *own;
	}
	__u8 header[LINK_MAX + 2];
	void *data = (void *)(long)xdp->data;
	if (data + LINK_MAX > p.end)
		return XDP_DROP;
	__builtin_memcpy(header, data, LINK_MAX);
	int total = bpf_xdp_get_buff_len(xdp);
	if (bpf_xdp_adjust_tail(xdp, (int)(link + quote) - total) || bpf_xdp_adjust_head(xdp, -(int)room))
		return XDP_DROP;
	data = (void *)(long)xdp->data;
	void *end = (void *)(long)xdp->data_end;
	if (data + LINK_MAX > end)
		return XDP_DROP;
	if (link == 14)
		__builtin_memcpy(data, header, 14);
	else if (link == 18)
		__builtin_memcpy(data, header, 18);
	else
		__builtin_memcpy(data, header, 22);
	turn_link(data);
	if (p.version == 4) {
		struct answer4 *a = data + link;
		if ((void *)(a + 1) > end)
			return XDP_DROP;
		write_ip4(&a->ip, p.destination.words[3], p.source.words[3], IPPROTO_ICMP, 0xc0, sizeof(*a) + quote);
		*(__u32 *)&a->icmp = mtu ? ICMP_DEST_UNREACH | ICMP_FRAG_NEEDED << 8 : ICMP_TIME_EXCEEDED;
		*((__u32 *)&a->icmp + 1) = bpf_htonl(mtu & 0xffff);
		a->icmp.checksum = ~fold(sum_bytes(&a->icmp, sizeof(a->icmp)) + sum_quote(a + 1, end, quote));
	} else {
		struct answer6 *a = data + link;
		if ((void *)(a + 1) > end)
			return XDP_DROP;
		write_ip6(&a->ip, &p.destination, &p.source, IPPROTO_ICMPV6, 0, 0, sizeof(*a) + quote);
		*(__u32 *)&a->icmp = mtu ? ICMPV6_PKT_TOOBIG : ICMPV6_TIME_EXCEED;
		*((__u32 *)&a->icmp + 1) = bpf_htonl(mtu);
		__u64 sum = sum_bytes(&a->ip.saddr, 2 * sizeof(a->ip.saddr)) + bpf_htonl(sizeof(a->icmp) + quote) +
			    bpf_htonl(IPPROTO_ICMPV6) + sum_bytes(&a->icmp, sizeof(a->icmp));
		a->icmp.icmp6_cksum = ~fold(sum + sum_quote(a + 1, end, quote));
	}
	return bpf_redirect(xdp->ingress_ifindex, 0);
}

__noinline int too_big(struct xdp_md *xdp, __u32 mtu)
{
	drop(xdp, REASON_TOO_BIG);
	if (mtu < 68 || mtu > 0xffff)
		return XDP_DROP;
	return answer(xdp, mtu);
}

/* Drops a packet as it came, and says why; to the sender, too, when its time is over. */
__noinline int refuse(struct xdp_md *xdp, int result)
{
	drop(xdp, result);
	if (result != -REASON_LOOP)
		return XDP_DROP;
	return answer(xdp, 0);
}
