/* Which clients are admitted: sources that cannot be, source ranges, the limit of new flows,
 * and nobody where a VIP has no frontend. */
#pragma once

#include "../lib/bucket.h"
#include "../lib/parse.h"
#include "maps.h"

/* Addresses that are nobody's, as sources: this network, loopback, multicast, reserved and
 * broadcast (RFC 1122, 3.2.1.3; RFC 4291, 2.5 and 2.7), and VIPs, from which no packet comes in. */
static __always_inline int martian(const struct packet *p)
{
	struct address a = p->source; /* a copy: nothing may point into the cursor, or it is kept in memory */
	if (p->version == 4) {
		__u8 net = a.words[3] & 0xff;
		if (net == 0 || net == 127 || net >= 224)
			return 1;
	} else {
		if ((a.words[0] & 0xff) == 0xff || is4(&a))
			return 1;
		if (a.halves[0] == 0 && (a.halves[1] == 0 || a.halves[1] == bpf_cpu_to_be64(1)))
			return 1;
	}
	return bpf_map_lookup_elem(&vips, &a) != 0;
}

static __noinline int in_sources(const struct address *client, __u32 frontend)
{
	struct source_key key = {
		.prefix = 32 + 128,
		.frontend = frontend,
		.client = *client,
	};
	return bpf_map_lookup_elem(&sources, &key) != 0;
}

/* Does a socket of the machine have a connection that the packet belongs to? */
static __noinline int connected(struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	__u32 size = sizeof(tuple.ipv4);
	if (p->version == 4) {
		tuple.ipv4.saddr = p->source.words[3];
		tuple.ipv4.daddr = p->destination.words[3];
		tuple.ipv4.sport = p->source_port;
		tuple.ipv4.dport = p->destination_port;
	} else {
		size = sizeof(tuple.ipv6);
		__builtin_memcpy(tuple.ipv6.saddr, &p->source, 16);
		__builtin_memcpy(tuple.ipv6.daddr, &p->destination, 16);
		tuple.ipv6.sport = p->source_port;
		tuple.ipv6.dport = p->destination_port;
	}
	/* The ways end differently for the verifier, which has an instruction know one kind of
	 * socket only; of UDP, too, those that are connected are called established. */
	struct bpf_sock *sk;
	int is;
	if (p->protocol == IPPROTO_TCP) {
		sk = bpf_skc_lookup_tcp(p->xdp, &tuple, size, BPF_F_CURRENT_NETNS, 0);
		if (!sk)
			return 0;
		is = sk->state != BPF_TCP_LISTEN;
		bpf_sk_release(sk);
		asm volatile("" : "+r"(is));
	} else {
		sk = bpf_sk_lookup_udp(p->xdp, &tuple, size, BPF_F_CURRENT_NETNS, 0);
		if (!sk)
			return 0;
		is = sk->state == BPF_TCP_ESTABLISHED;
		bpf_sk_release(sk);
		asm volatile("" : "+r"(is) : "r"(size));
	}
	return is;
}

/* A packet with ports for a VIP that is guarded, and for no frontend that is balanced. What
 * the machine serves at all its addresses is not for those who know the VIP. Answers to
 * what the machine began itself are let in. Returns XDP_PASS or a reason, negative. */
static __noinline int keep_out(struct packet *p)
{
	struct frontend_key key = {.vip = p->destination, .port = p->destination_port, .protocol = p->protocol};
	if (bpf_map_lookup_elem(&frontends, &key) || bpf_map_lookup_elem(&others, &key))
		return XDP_PASS;
	__u8 begins = p->tcp_flags & (TCP_SYN | TCP_ACK);
	if (!(p->protocol == IPPROTO_TCP && begins == TCP_SYN) && connected(p))
		return XDP_PASS;
	return -REASON_NO_FRONTEND;
}

static __always_inline int within_limit(const struct frontend *f)
{
	__u32 index = f->index;
	return spend_token(bpf_map_lookup_elem(&limits, &index), f->limit);
}
