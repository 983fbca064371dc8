/* MODE_NAT: addresses of both ends rewritten, both ways. Returns of both functions: a
 * verdict of XDP, or a reason, negative. They see packets of every packet_kind. */
#pragma once

#include <stdbool.h>

#include "count.h"
#include "encap.h"
#include "fib.h"
#include "flow.h"
#include "maps.h"
#include "parse.h"
#include "route.h"

int too_big(struct xdp_md *xdp, __u32 mtu);

/* After so many seconds of silence another flow may have a port of ours: RFC 5382, REQ-5
 * (established, and on the way to it or from it) and RFC 4787, REQ-5. */
const volatile __u32 nat_idle_tcp = 7440;
const volatile __u32 nat_idle_opening = 240;
const volatile __u32 nat_idle_udp = 300;
/* The client reset it, which nobody but the backend can tell from a forged packet. */
const volatile __u32 nat_idle_reset = 30;
/* Both sides have ended: what was lost on the way was sent again by then, but the backend
 * may remember the port for longer (TIME-WAIT, a minute in Linux) and keep another client
 * waiting, whose sequence numbers and timestamps are smaller (RFC 6191). So first come ports
 * that nobody had, or not for nat_idle_forgotten, and of others those silent for longest. */
const volatile __u32 nat_idle_closed = 2;
const volatile __u32 nat_idle_forgotten = 120;
/* Only the first packet was seen, as of a flood. Taken when there is nothing better. */
const volatile __u32 nat_idle_flood = 5;

#define NAT_TRIES 32 /* ports looked at for a new flow */
#define NAT_ENOUGH 4 /* of flows that have ended, to choose from */

struct ends {
	struct address source;
	struct address destination;
	__u16 from; /* ports */
	__u16 to;
};

/* What does not fit the stack, and what functions that are verified once are told. */
struct nat_work {
	struct nat_key key;
	struct nat entry;
	struct ends old;
	struct ends outer;
	struct ends quoted; /* of ICMP errors */
	struct next_hop way;
	struct fragment_key fragment;
	struct frontend_key frontend;
	struct flow_key flow;
	struct bpf_fib_lookup fib;
	struct address backend; /* of nat_forward */
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} header;
	__u32 network; /* offsets in the packet */
	__u32 transport;
	__u32 length;
	__u32 index; /* of the frontend */
	__u32 next_hop;
	__u32 since; /* of nat_port: when the holder of a port was heard of */
	__u32 best_since;
	__u32 half_since;
	__be16 best; /* ports that may be taken */
	__be16 half;
	__be16 backend_port;
	__be16 port; /* ours: where it was, and where it is */
	__u8 version;
	__u8 protocol; /* of the flow */
	__u8 kind;     /* enum packet_kind */
	__u8 flags;    /* of TCP */
	__u8 ttl;
	__u8 ended; /* how many flows that have ended were looked at */
	__u8 zero[2];
};

SCRATCH(nat_works, struct nat_work);
MAP(nat_fragments, LRU_HASH, 1 << 12, struct fragment_key, struct nat_key);

static __always_inline struct nat_work *nat_work(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&nat_works, &zero);
}

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

/* Neither side sends more than what repeats or acknowledges. */
static __always_inline bool nat_over(__u32 state)
{
	return (state & NAT_BACKEND_RESET) ||
	       ((state & NAT_BACKEND_ENDED) && (state & (NAT_CLIENT_ENDED | NAT_CLIENT_RESET)));
}

/* Says whether a port that another flow has may be taken from it. */
static __always_inline bool nat_idle(const struct nat *n, __u8 protocol, __u32 now)
{
	__u32 state = n->state, patience = nat_idle_tcp;
	if (protocol == IPPROTO_UDP)
		patience = nat_idle_udp;
	else if (nat_over(state))
		patience = nat_idle_closed;
	else if (state & NAT_CLIENT_RESET)
		patience = nat_idle_reset;
	else if (state != NAT_OPEN)
		patience = nat_idle_opening;
	return (__s32)(now - n->seen) > (__s32)patience;
}

static __always_inline bool same_client(const struct nat *a, const struct nat *b)
{
	return a->frontend == b->frontend && a->client_port == b->client_port && same_address(&a->client, &b->client);
}

static __always_inline void nat_mark(struct nat *n, __u32 bits)
{
	if ((n->state & bits) != bits)
		__sync_fetch_and_or(&n->state, bits); /* the other side may be on another CPU */
}

/* The flow with w->key has ended and is no longer among those that are kept. n is not to be
 * used any more. */
static __always_inline void nat_bury(struct nat_work *w, const struct nat *n)
{
	if (!bpf_map_update_elem(&nat_closed, &w->key, n, BPF_ANY))
		bpf_map_delete_elem(&nat, &w->key);
}

static __always_inline bool nat_begins(__u32 flags)
{
	return (flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* Notes a packet of the client in its flow. */
static __always_inline void nat_note(struct nat *n, __u32 flags, __u32 now)
{
	if (n->seen != now)
		n->seen = now;
	if (nat_begins(flags)) {
		if (n->state)
			n->state = 0;
		return;
	}
	nat_mark(n, NAT_OPEN | (flags & TCP_FIN ? NAT_CLIENT_ENDED : 0) | (flags & TCP_RST ? NAT_CLIENT_RESET : 0));
	if (!(flags & TCP_RST) && (n->state & NAT_CLIENT_RESET)) /* it goes on: the reset was none of its own */
		__sync_fetch_and_and(&n->state, ~NAT_CLIENT_RESET);
}

/* Whose w->key's port is. */
enum nat_holder {
	NAT_OURS,   /* w->entry's flow has it already */
	NAT_UNUSED, /* nobody, for long */
	NAT_ENDED,  /* a flow that has ended at w->since */
	NAT_SILENT, /* a flow that may lose it */
	NAT_HALF,   /* a flow of which one packet came, at w->since */
	NAT_TAKEN,
};

static __always_inline enum nat_holder nat_holder(struct nat_work *w, __u32 flags, __u32 note)
{
	__u32 now = w->entry.seen;
	struct nat *n = bpf_map_lookup_elem(&nat, &w->key);
	if (n) {
		w->since = n->seen;
		if (same_client(n, &w->entry)) {
			if (!note)
				return NAT_OURS;
			nat_note(n, flags, now);
			if (nat_over(n->state) && w->key.protocol == IPPROTO_TCP)
				nat_bury(w, n);
			return NAT_OURS;
		}
		if (nat_idle(n, w->key.protocol, now))
			return NAT_SILENT;
		if (w->key.protocol == IPPROTO_TCP && !n->state && (__s32)(now - n->seen) > (__s32)nat_idle_flood)
			return NAT_HALF;
		return NAT_TAKEN;
	}
	n = bpf_map_lookup_elem(&nat_closed, &w->key);
	if (!n)
		return NAT_UNUSED;
	w->since = n->seen;
	if (same_client(n, &w->entry)) {
		if (note && nat_begins(flags)) /* the client uses its own port again */
			bpf_map_update_elem(&nat, &w->key, &w->entry, BPF_NOEXIST);
		else if (note)
			nat_note(n, flags, now);
		return NAT_OURS;
	}
	__s32 silent = (__s32)(now - n->seen);
	return silent > (__s32)nat_idle_forgotten ? NAT_UNUSED
	       : silent > (__s32)nat_idle_closed  ? NAT_ENDED
						  : NAT_TAKEN;
}

/* Gives w->entry's flow a port that no flow is kept for. Returns false if another CPU was
 * faster. */
static __always_inline bool nat_take_free(struct nat_work *w)
{
	if (bpf_map_update_elem(&nat, &w->key, &w->entry, BPF_NOEXIST))
		return false;
	bpf_map_delete_elem(&nat_closed, &w->key);
	return true;
}

/* Gives it a port that another flow has, unless that was heard of after w->since. */
static __always_inline bool nat_take_over(struct nat_work *w)
{
	struct nat *n = bpf_map_lookup_elem(&nat, &w->key);
	__u32 since = w->since;
	if (!n || __sync_val_compare_and_swap(&n->seen, since, w->entry.seen) != since)
		return false;
	return !bpf_map_update_elem(&nat, &w->key, &w->entry, BPF_EXIST);
}

/* The i-th of our ports; 0: there is none. */
static __always_inline __u32 nat_port_at(const struct settings *s, __u32 i)
{
	__u32 first = s->nat_ports[0][0], size = first ? s->nat_ports[0][1] - first + 1 : 0;
	return i < size ? first + i : s->nat_ports[1][0] + (i - size);
}

/* The port that w->entry's flow has towards w->key's backend, network byte order; 0: none.
 * hint is where it was. Searching begins at a place that depends on the flow, so that it is
 * found again when the flow table forgot it; grant says whether it may get a new one. */
__noinline int nat_port(__u32 hint, __u32 flags, __u32 grant)
{
	struct settings *s = setting();
	struct nat_work *w = nat_work();
	if (!s || !w)
		return 0;
	__u32 count = 0;
	for (int i = 0; i < 2; i++)
		count += s->nat_ports[i][0] ? s->nat_ports[i][1] - s->nat_ports[i][0] + 1 : 0;
	if (!count || count > 0xffff)
		return 0;
	if (hint) {
		w->key.source_port = hint;
		enum nat_holder whose = nat_holder(w, flags, grant);
		if (whose == NAT_OURS || (grant && whose == NAT_UNUSED && nat_take_free(w)))
			return hint;
	}
	__u64 h = w->entry.client.halves[1] ^ w->entry.client.halves[0] * 31 ^
		  ((__u64)w->entry.frontend << 16 | w->entry.client_port);
	h *= 0x9E3779B97F4A7C15ull;
	h ^= h >> 32;
	/* An odd step into a range that need not be a power of two: neighbours on one way part
	 * on the next. */
	__u32 start = (__u32)h % count, step = ((__u32)(h >> 40) & 0xff) | 1;
	/* What goes on has a port, if any: it is looked for before it gets another. */
	bool take = grant && (w->key.protocol == IPPROTO_UDP || nat_begins(flags));
	w->best = w->half = 0;
	w->ended = 0;
	for (int i = 0; i < 2 * NAT_TRIES; i++) {
		if (i == NAT_TRIES) {
			if (take || !grant)
				break;
			take = true;
		}
		__u32 at = start + step * (i & (NAT_TRIES - 1));
		w->key.source_port = bpf_htons(nat_port_at(s, at % count));
		/* Peers that send from and to one port are not to be taken for answers. */
		if (w->key.source_port == w->key.backend_port)
			continue;
		enum nat_holder whose = nat_holder(w, flags, grant);
		if (whose == NAT_OURS)
			return w->key.source_port;
		if (!take)
			continue;
		if (whose == NAT_UNUSED && nat_take_free(w))
			return w->key.source_port;
		if (whose == NAT_SILENT && nat_take_over(w))
			return w->key.source_port;
		if (whose == NAT_HALF && (!w->half || (__s32)(w->since - w->half_since) < 0)) {
			w->half = w->key.source_port;
			w->half_since = w->since;
		}
		if (whose == NAT_ENDED) {
			if (!w->best || (__s32)(w->since - w->best_since) < 0) {
				w->best = w->key.source_port;
				w->best_since = w->since;
			}
			if (++w->ended == NAT_ENOUGH)
				break;
		}
	}
	w->key.source_port = w->best;
	if (w->best && nat_take_free(w))
		return w->best;
	w->key.source_port = w->half;
	w->since = w->half_since;
	return w->half && nat_take_over(w) ? w->half : 0;
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
	if (flags && f->hash == HASH_FIVE_TUPLE)
		flow->state = FLOW_CLOSING;
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

/* The packet's destination is a port that flows of ours may have. */
static __always_inline bool nat_port_range(__be16 port)
{
	struct settings *s = setting();
	__u16 at = bpf_ntohs(port);
	return s && ((at >= s->nat_ports[0][0] && at <= s->nat_ports[0][1]) ||
		     (at >= s->nat_ports[1][0] && at <= s->nat_ports[1][1]));
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
	if (flags)
		nat_mark(n, (flags & TCP_FIN ? NAT_BACKEND_ENDED : 0) | (flags & TCP_RST ? NAT_BACKEND_RESET : 0));
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
