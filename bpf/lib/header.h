/* Headers that programs write, and change in place. */
#pragma once

#include "parse.h"

#define OUTER_TTL 64

struct geneve {
	__u8 options; /* version 0 and their length, 4-byte words */
	__u8 flags;
	__be16 protocol;
	__be32 vni;
};

#define GENEVE_CONTROL 0x80
#define GENEVE_CRITICAL 0x40

/* Takes one from the TTL of the packet at p->network. The checksum follows (RFC 1624). */
static __always_inline void decrement_ttl(struct packet *p)
{
	if (p->version == 4) {
		struct iphdr *ip = p->network;
		if ((void *)(ip + 1) > p->end)
			return;
		__u32 sum = (__u32)ip->check + bpf_htons(0x0100);
		ip->check = (__u16)(sum + (sum >= 0xffff));
		ip->ttl--;
	} else {
		struct ipv6hdr *ip = p->network;
		if ((void *)(ip + 1) > p->end)
			return;
		ip->hop_limit--;
	}
}

/* Writes an outer IPv4 header. length is of all that follows the link header, bytes. */
static __always_inline void write_ip4(void *at, __u32 source, __u32 destination, __u8 protocol, __u8 tos, __u32 length)
{
	__u32 first = 0x45 | (__u32)tos << 8 | (__u32)bpf_htons(length) << 16;
	__u32 second = (__u32)bpf_htons(0x4000) << 16; /* may not be fragmented */
	__u32 third = OUTER_TTL | (__u32)protocol << 8;
	__u32 sum = (__u16)~fold((__u64)first + second + third + source + destination);
	*(__u32 *)at = first;
	*(__u32 *)(at + 4) = second;
	*(__u32 *)(at + 8) = third | sum << 16;
	*(__u32 *)(at + 12) = source;
	*(__u32 *)(at + 16) = destination;
}

static __always_inline void write_ip6(void *at, const struct address *source, const struct address *destination,
				      __u8 protocol, __u8 tos, __u32 label, __u32 length)
{
	*(__u32 *)at = bpf_htonl(6u << 28 | (__u32)tos << 20 | (label & 0xfffff));
	*(__u32 *)(at + 4) = bpf_htons(length - sizeof(struct ipv6hdr)) | (__u32)protocol << 16 | OUTER_TTL << 24;
	*(__u64 *)(at + 8) = source->halves[0];
	*(__u64 *)(at + 16) = source->halves[1];
	*(__u64 *)(at + 24) = destination->halves[0];
	*(__u64 *)(at + 32) = destination->halves[1];
}
