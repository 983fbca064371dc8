/* MODE_NAT: addresses of both ends rewritten, both ways. Returns of both functions: a
 * verdict of XDP, or a reason, negative. They see packets of every packet_kind. */
#pragma once

#include <stdbool.h>

#include "../lib/answer.h"
#include "../lib/clock.h"
#include "../lib/count.h"
#include "../lib/fib.h"
#include "../lib/parse.h"
#include "../lib/route.h"
#include "flow.h"
#include "maps.h"
#include "natport.h"

/* What the sum of a header gains when the address changes. */
static __always_inline __u64 gain(const struct address *old, const struct address *new, __u8 version)
{
	__u64 sum = (__u64)(__u32)~old->words[3] + new->words[3];
	if (version == 6)
		for (int i = 0; i < 3; i++)
			sum += (__u64)(__u32)~old->words[i] + new->words[i];
	return sum;
}

/* A checksum whose data gained so much (RFC 1624). */
static __always_inline __u16 evened(__u16 check, __u64 gained)
{
	return ~fold((__u64)(__u16)~check + gained);
}

static __always_inline void write_addresses(void *network, __u8 version, const struct ends *e)
{
	if (version == 4) {
		struct iphdr *ip = network;
		ip->saddr = e->source.words[3];
		ip->daddr = e->destination.words[3];
	} else {
		struct ipv6hdr *ip = network;
		__builtin_memcpy(&ip->saddr, &e->source, 16);
		__builtin_memcpy(&ip->daddr, &e->destination, 16);
	}
}

/* Rewrites a TCP or UDP packet, or a fragment of one. */
static __always_inline int rewrite_ends(struct xdp_md *xdp, struct nat_work *w)
{
	struct ends *e = &w->outer, *old = &w->old;
	void *end = (void *)(long)xdp->data_end;
	__u64 gained =
		gain(&old->source, &e->source, w->version) + gain(&old->destination, &e->destination, w->version);
	__u32 at = w->network;
	if (at > LINK_MAX)
		return -REASON_INTERNAL;
	void *network = (void *)(long)xdp->data + at;
	if (w->version == 4) {
		struct iphdr *ip = network;
		if ((void *)(ip + 1) > end)
			return -REASON_TRUNCATED;
		ip->check = evened(ip->check, gained);
		write_addresses(network, 4, e);
	} else {
		if (network + sizeof(struct ipv6hdr) > end)
			return -REASON_TRUNCATED;
		write_addresses(network, 6, e);
	}
	if (w->kind == KIND_FRAGMENT_LATER)
		return 0;
	gained += (__u64)(__u16)~old->from + e->from;
	gained += (__u64)(__u16)~old->to + e->to;
	at = w->transport;
	if (at > 0xfff)
		return -REASON_TRUNCATED;
	void *transport = (void *)(long)xdp->data + at;
	if (w->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = transport;
		if ((void *)(tcp + 1) > end)
			return -REASON_TRUNCATED;
		tcp->source = e->from;
		tcp->dest = e->to;
		tcp->check = evened(tcp->check, gained);
		return 0;
	}
	struct udphdr *udp = transport;
	if ((void *)(udp + 1) > end)
		return -REASON_TRUNCATED;
	udp->source = e->from;
	udp->dest = e->to;
	if (udp->check) { /* 0: there is none */
		__u16 check = evened(udp->check, gained);
		udp->check = check ? check : 0xffff;
	}
	return 0;
}

static __always_inline long load_header(struct xdp_md *xdp, struct nat_work *w, __u32 at)
{
	if (w->version == 4) {
		if (bpf_xdp_load_bytes(xdp, at, &w->header.v4, sizeof(w->header.v4)))
			return -1;
		w->old.source = address4(w->header.v4.saddr);
		w->old.destination = address4(w->header.v4.daddr);
		return 0;
	}
	if (bpf_xdp_load_bytes(xdp, at, &w->header.v6, sizeof(w->header.v6)))
		return -1;
	w->old.source = address6(&w->header.v6.saddr);
	w->old.destination = address6(&w->header.v6.daddr);
	return 0;
}

static __always_inline long store_header(struct xdp_md *xdp, struct nat_work *w, __u32 at)
{
	if (w->version == 4)
		return bpf_xdp_store_bytes(xdp, at, &w->header.v4, sizeof(w->header.v4));
	return bpf_xdp_store_bytes(xdp, at, &w->header.v6, sizeof(w->header.v6));
}

/* Gives the header in w->header other addresses. Returns what the sum of what it heads gains,
 * without its own checksum's part. */
static __always_inline __u64 rewrite_header(struct nat_work *w, const struct ends *e)
{
	__u64 gained =
		gain(&w->old.source, &e->source, w->version) + gain(&w->old.destination, &e->destination, w->version);
	write_addresses(&w->header, w->version, e);
	if (w->version == 4)
		w->header.v4.check = evened(w->header.v4.check, gained);
	return gained;
}

/* Rewrites an ICMP error: its own addresses, and addresses and ports of the packet that it
 * quotes. */
static __always_inline int rewrite_quoting(struct xdp_md *xdp, struct nat_work *w)
{
	__u32 message = w->transport, quoted = message + 8, transport;
	__u16 check, ports[2];
	if (load_header(xdp, w, quoted))
		return -REASON_TRUNCATED;
	if (w->version == 4)
		transport = quoted + w->header.v4.ihl * 4;
	else if (w->header.v6.nexthdr == w->protocol)
		transport = quoted + sizeof(w->header.v6);
	else
		return -REASON_BAD_EXTENSION;
	if (bpf_xdp_load_bytes(xdp, transport, ports, sizeof(ports)))
		return -REASON_TRUNCATED;
	__u64 addresses = rewrite_header(w, &w->quoted);
	__u64 moved = (__u64)(__u16)~ports[0] + w->quoted.from + (__u16)~ports[1] + w->quoted.to;
	/* What the message gains: IPv4's header checksum evens its addresses out. */
	__u64 gained = w->version == 4 ? moved : moved + addresses;
	ports[0] = w->quoted.from;
	ports[1] = w->quoted.to;
	if (bpf_xdp_store_bytes(xdp, transport, ports, sizeof(ports)) || store_header(xdp, w, quoted))
		return -REASON_INTERNAL;
	transport += w->protocol == IPPROTO_TCP ? 16 : 6;
	if (transport + 2 <= w->network + w->length && !bpf_xdp_load_bytes(xdp, transport, &check, 2) &&
	    (check || w->protocol == IPPROTO_TCP)) {
		__u16 new = evened(check, moved + addresses);
		gained += (__u64)(__u16)~check + new;
		if (bpf_xdp_store_bytes(xdp, transport, &new, 2))
			return -REASON_INTERNAL;
	}
	if (load_header(xdp, w, w->network))
		return -REASON_TRUNCATED;
	addresses = rewrite_header(w, &w->outer);
	if (w->version == 6) /* the pseudo header */
		gained += addresses;
	if (store_header(xdp, w, w->network) || bpf_xdp_load_bytes(xdp, message + 2, &check, 2))
		return -REASON_INTERNAL;
	check = evened(check, gained);
	return bpf_xdp_store_bytes(xdp, message + 2, &check, 2) ? -REASON_INTERNAL : 0;
}

/* Rewrites the packet as nat_work says and takes one from its TTL. */
__noinline int nat_rewrite(struct xdp_md *xdp)
{
	struct nat_work *w = nat_work();
	if (!w)
		return -REASON_INTERNAL;
	int bad = w->kind == KIND_ICMP ? rewrite_quoting(xdp, w) : rewrite_ends(xdp, w);
	if (bad)
		return bad;
	__u32 at = w->network;
	if (at > LINK_MAX)
		return -REASON_INTERNAL;
	void *network = (void *)(long)xdp->data + at;
	void *end = (void *)(long)xdp->data_end;
	if (w->version == 4) {
		struct iphdr *ip = network;
		if ((void *)(ip + 1) > end)
			return -REASON_TRUNCATED;
		ip->check = evened(ip->check, (__u16)~bpf_htons(0x0100));
		ip->ttl--;
	} else {
		struct ipv6hdr *ip = network;
		if ((void *)(ip + 1) > end)
			return -REASON_TRUNCATED;
		ip->hop_limit--;
	}
	return 0;
}

/* Tells the functions that are verified once what the packet is. */
static __always_inline void describe(struct nat_work *w, const struct packet *p)
{
	w->network = p->link;
	w->transport = p->link + (__u32)(p->transport - p->network);
	w->length = p->length;
	w->version = p->version;
	w->protocol = p->protocol;
	w->kind = p->kind == KIND_ICMP_ERROR ? KIND_ICMP : p->kind;
	w->flags = p->tcp_flags;
	w->ttl = p->ttl;
	w->old.source = p->source;
	w->old.destination = p->destination;
	w->old.from = p->source_port;
	w->old.to = p->destination_port;
	w->fragment.source = p->source;
	w->fragment.destination = p->destination;
	w->fragment.id = p->fragment;
	w->fragment.protocol = p->version == 4 ? p->protocol : 0;
}

/* A packet that is quoted went the other way. */
static __always_inline void turn(struct nat_work *w)
{
	w->quoted.source = w->outer.destination;
	w->quoted.from = w->outer.to;
	w->quoted.destination = w->outer.source;
	w->quoted.to = w->outer.from;
}

/* What nat_forward does, of the packet that nat_work describes. */
__noinline int nat_send(struct xdp_md *xdp)
{
	struct nat_work *w = nat_work();
	struct settings *s = setting();
	if (!w || !s)
		return -REASON_INTERNAL;
	if (is4(&w->backend) != (w->version == 4))
		return -REASON_UNSUPPORTED_PROTOCOL;
	struct packet p = {.xdp = xdp, .link = w->network, .version = w->version};
	struct next_hop *nh = next_hop_of(&p, w->next_hop, &w->backend, &w->way);
	if (!nh)
		return -REASON_NO_ROUTE;
	if (w->length > nh->mtu && w->kind != KIND_ICMP)
		return too_big(xdp, nh->mtu);
	struct ends *e = &w->outer;
	if (w->version == 4)
		e->source = nh->source4 ? address4(nh->source4) : s->tunnel4;
	else
		e->source = nh->source.halves[0] | nh->source.halves[1] ? nh->source : s->tunnel6;
	e->destination = w->backend;
	e->to = w->backend_port;
	e->from = 0;
	if (w->kind != KIND_FRAGMENT_LATER) {
		__builtin_memset(&w->key, 0, sizeof(w->key));
		w->key.backend = w->backend;
		w->key.source = e->source;
		w->key.backend_port = w->backend_port;
		w->key.protocol = w->protocol;
		__builtin_memset(&w->entry, 0, sizeof(w->entry));
		w->entry.client = w->old.source;
		w->entry.frontend = w->index;
		w->entry.client_port = w->old.from;
		w->entry.vip = w->old.destination;
		w->entry.vip_port = w->old.to;
		w->entry.seen = seconds();
		w->entry.state = w->flags & TCP_RST   ? NAT_CLIENT_RESET | NAT_BACKEND_RESET /* nobody answers */
				 : w->flags & TCP_FIN ? NAT_CLIENT_ENDED
						      : 0;
		w->port = nat_port(w->port, w->flags, w->kind != KIND_ICMP);
		if (!w->port)
			return w->kind == KIND_ICMP ? -REASON_ICMP_UNKNOWN : -REASON_NO_PORT;
		e->from = w->port;
	}
	turn(w);
	int bad = nat_rewrite(xdp);
	return bad ? bad : forward(&p, nh);
}

/* Rewrites a packet of a client for backend b and sends it. flow->nat_port is the port that
 * the flow has at this machine, network byte order; 0: it has none yet, and gets one here. */
static __always_inline int nat_forward(struct packet *p, struct frontend *f, struct backend *b, struct flow *flow)
{
	struct nat_work *w = nat_work();
	if (!w)
		return -REASON_INTERNAL;
	describe(w, p);
	w->index = f->index;
	w->backend = b->address;
	w->backend_port = b->port;
	w->next_hop = b->next_hop;
	w->port = flow->nat_port;
	int verdict = nat_send(p->xdp);
	if (flow->nat_port != w->port)
		flow->nat_port = w->port;
	return verdict;
}

/* What the short program does with a packet of a flow that has a port: balance_any would do
 * the same. */
static __always_inline int nat_known(struct packet *p, struct frontend *f, __u32 at, struct backend *b,
				     struct flow *flow, const struct flow_key *key, __u32 now)
{
	if (b->mode != MODE_NAT || (b->flags & BACKEND_HERE) || !flow->nat_port)
		return LONG_WAY;
	note(flow, key, p, f, now);
	if (p->ttl <= 1)
		return -REASON_LOOP;
	__u32 index = f->index, length = p->length;
	int verdict = nat_forward(p, f, b, flow);
	if (verdict >= 0) {
		count(&frontend_counters, index, length, 0);
		count(&backend_counters, at, length, 0);
	}
	return verdict;
}

/* The flow is in use: its entry must last as long as the port. Once a second is enough. */
static __always_inline void nat_touch(struct nat_work *w, const struct nat *n, __u8 flags, __u32 now)
{
	__builtin_memset(&w->frontend, 0, sizeof(w->frontend));
	w->frontend.vip = n->vip;
	w->frontend.port = n->vip_port;
	w->frontend.protocol = w->key.protocol;
	struct frontend *f = bpf_map_lookup_elem(&frontends, &w->frontend);
	if (!f)
		return;
	w->flow.client = n->client;
	w->flow.frontend = f->index;
	w->flow.port = f->hash == HASH_FIVE_TUPLE ? n->client_port : 0;
	w->flow.zero = 0;
	struct flow *flow = bpf_map_lookup_elem(&flows, &w->flow);
	if (!flow)
		return;
	if (flow->seen != now)
		flow->seen = now;
	if (flags && f->hash == HASH_FIVE_TUPLE) {
		tell_end(&w->flow, flow, flags, 1);
		flow->state = FLOW_CLOSING;
	}
}

/* Reads the quoted packet of an ICMP error to us into w->key: it was sent by us to a
 * backend. Returns false if it is none. */
static __always_inline bool nat_quoted(struct xdp_md *xdp, struct nat_work *w)
{
	__u32 message = w->transport;
	__u32 transport;
	__u8 type;
	__u16 ports[2];

	if (bpf_xdp_load_bytes(xdp, message, &type, 1))
		return false;
	if (w->version == 4) {
		if (type != ICMP_DEST_UNREACH && type != ICMP_TIME_EXCEEDED && type != ICMP_PARAMETERPROB)
			return false;
		if (bpf_xdp_load_bytes(xdp, message + 8, &w->header.v4, sizeof(w->header.v4)))
			return false;
		struct iphdr *ip = &w->header.v4;
		if (ip->version != 4 || ip->ihl < 5 || (ip->frag_off & bpf_htons(0x1fff)))
			return false;
		w->key.source = address4(ip->saddr);
		w->key.backend = address4(ip->daddr);
		w->key.protocol = ip->protocol;
		transport = message + 8 + ip->ihl * 4;
	} else {
		if (type < ICMPV6_DEST_UNREACH || type > ICMPV6_PARAMPROB)
			return false;
		if (bpf_xdp_load_bytes(xdp, message + 8, &w->header.v6, sizeof(w->header.v6)))
			return false;
		struct ipv6hdr *ip = &w->header.v6;
		if (ip->version != 6)
			return false;
		w->key.source = address6(&ip->saddr);
		w->key.backend = address6(&ip->daddr);
		w->key.protocol = ip->nexthdr;
		transport = message + 8 + sizeof(*ip);
	}
	if (w->key.protocol != IPPROTO_TCP && w->key.protocol != IPPROTO_UDP)
		return false;
	if (bpf_xdp_load_bytes(xdp, transport, ports, sizeof(ports)))
		return false;
	w->key.source_port = ports[0];
	w->key.backend_port = ports[1];
	return true;
}

/* What nat_back does, of the packet that nat_work describes, if it is one of ours. */
__noinline int nat_answer(struct xdp_md *xdp)
{
	struct nat_work *w = nat_work();
	if (!w)
		return XDP_PASS;
	__builtin_memset(&w->key, 0, sizeof(w->key));
	if (w->kind == KIND_ICMP) {
		if (!nat_quoted(xdp, w) || !nat_port_range(w->key.source_port))
			return XDP_PASS;
	} else if (w->kind == KIND_FRAGMENT_LATER) {
		struct nat_key *known = bpf_map_lookup_elem(&nat_fragments, &w->fragment);
		if (!known)
			return XDP_PASS;
		w->key = *known;
	} else {
		w->key.backend = w->old.source;
		w->key.source = w->old.destination;
		w->key.backend_port = w->old.from;
		w->key.source_port = w->old.to;
		w->key.protocol = w->protocol;
	}
	struct nat *n = bpf_map_lookup_elem(&nat, &w->key);
	bool kept = n;
	if (!n)
		n = bpf_map_lookup_elem(&nat_closed, &w->key);
	if (!n)
		return XDP_PASS;
	if (w->ttl <= 1)
		return -REASON_LOOP;
	if (w->kind == KIND_FRAGMENT_FIRST)
		bpf_map_update_elem(&nat_fragments, &w->fragment, &w->key, BPF_ANY);
	__u32 now = seconds();
	bool idle = n->seen != now;
	__u8 flags = w->kind == KIND_ICMP ? 0 : w->flags & (TCP_FIN | TCP_RST);
	if (idle)
		n->seen = now;
	if (w->kind != KIND_ICMP)
		nat_mark(n, (flags & TCP_FIN ? NAT_BACKEND_ENDED : 0) |
				    (flags & TCP_RST ? NAT_BACKEND_RESET : NAT_BACKEND_SPOKE));
	if (idle || flags)
		nat_touch(w, n, flags, now);
	struct ends *e = &w->outer;
	e->source = n->vip;
	e->from = n->vip_port;
	e->destination = n->client;
	e->to = n->client_port;
	if (kept && flags && nat_over(n->state))
		nat_bury(w, n);
	long r = find_way(xdp, &w->fib, &e->source, &e->destination, &w->way);
	__u32 kernel = 0;
	if (r == BPF_FIB_LKUP_RET_NO_NEIGH)
		kernel = w->way.device;
	else if (r == BPF_FIB_LKUP_RET_FWD_DISABLED) /* the way it came, then */
		kernel = xdp->ingress_ifindex;
	else if (r != BPF_FIB_LKUP_RET_SUCCESS)
		return -REASON_NO_ROUTE;
	else if (w->length > w->way.mtu && w->kind != KIND_ICMP)
		return too_big(xdp, w->way.mtu);
	turn(w);
	w->protocol = w->key.protocol;
	int bad = nat_rewrite(xdp);
	if (bad)
		return bad;
	if (kernel)
		return leave_to_kernel(xdp, kernel);
	struct packet p = {.xdp = xdp, .link = w->network, .version = w->version};
	return forward(&p, &w->way);
}

/* Rewrites an answer of a backend and sends it to the client. XDP_PASS, and the packet
 * untouched: it is none. */
static __always_inline int nat_back(struct packet *p)
{
	if (p->kind == KIND_OTHER || p->kind == KIND_ICMP_ERROR)
		return XDP_PASS;
	if ((p->kind == KIND_WHOLE || p->kind == KIND_FRAGMENT_FIRST) && !nat_port_range(p->destination_port))
		return XDP_PASS;
	struct nat_work *w = nat_work();
	if (!w)
		return XDP_PASS;
	describe(w, p);
	return nat_answer(p->xdp);
}
