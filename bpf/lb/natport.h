/* The ports that flows of MODE_NAT have, and how they come and go. */
#pragma once

#include <stdbool.h>

#include "../lib/count.h"
#include "../lib/parse.h"
#include "maps.h"

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
/* The client did not go on after an answer, as those of a flood do not, and with TCP those who
 * forge their addresses cannot: a server resets what acknowledges nothing of its own. With UDP a second
 * datagram is enough. Taken when there is nothing better. */
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
	else if ((state & ~NAT_BACKEND_SPOKE) != NAT_OPEN)
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
static __always_inline void nat_note(struct nat *n, __u8 protocol, __u32 flags, __u32 now)
{
	if (n->seen != now)
		n->seen = now;
	if (nat_begins(flags)) {
		if (n->state)
			n->state = 0;
		return;
	}
	bool goes_on = (n->state & NAT_BACKEND_SPOKE) && (protocol == IPPROTO_UDP || (flags & TCP_ACK));
	nat_mark(n, (goes_on ? NAT_OPEN : 0) | (flags & TCP_FIN ? NAT_CLIENT_ENDED : 0) |
			    (flags & TCP_RST ? NAT_CLIENT_RESET : 0));
	if (!(flags & TCP_RST) && (n->state & NAT_CLIENT_RESET)) /* it goes on: the reset was none of its own */
		__sync_fetch_and_and(&n->state, ~NAT_CLIENT_RESET);
}

/* Whose w->key's port is. */
enum nat_holder {
	NAT_OURS,   /* w->entry's flow has it already */
	NAT_UNUSED, /* nobody, for long */
	NAT_ENDED,  /* a flow that has ended at w->since */
	NAT_SILENT, /* a flow that may lose it */
	NAT_HALF,   /* a flow whose client did not go on after an answer, heard of at w->since */
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
			nat_note(n, w->key.protocol, flags, now);
			if (nat_over(n->state) && w->key.protocol == IPPROTO_TCP)
				nat_bury(w, n);
			return NAT_OURS;
		}
		if (nat_idle(n, w->key.protocol, now))
			return NAT_SILENT;
		if (!(n->state & ~NAT_BACKEND_SPOKE) && (__s32)(now - n->seen) > (__s32)nat_idle_flood)
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
			nat_note(n, w->key.protocol, flags, now);
		return NAT_OURS;
	}
	__s32 silent = (__s32)(now - n->seen);
	return silent > (__s32)nat_idle_forgotten ? NAT_UNUSED
	       : silent > (__s32)nat_idle_closed  ? NAT_ENDED
						  : NAT_TAKEN;
}

/* Gives w->entry's flow a port that no flow is kept for. Returns false if another CPU was
 * faster. */
static __always_inline bool nat_assign_free(struct nat_work *w)
{
	if (bpf_map_update_elem(&nat, &w->key, &w->entry, BPF_NOEXIST))
		return false;
	bpf_map_delete_elem(&nat_closed, &w->key);
	return true;
}

/* Gives it a port that another flow has, unless that was heard of after w->since. */
static __always_inline bool nat_reassign(struct nat_work *w)
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
		if (whose == NAT_OURS || (grant && whose == NAT_UNUSED && nat_assign_free(w)))
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
		if (whose == NAT_UNUSED && nat_assign_free(w))
			return w->key.source_port;
		if (whose == NAT_SILENT && nat_reassign(w))
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
	if (w->best && nat_assign_free(w))
		return w->best;
	w->key.source_port = w->half;
	w->since = w->half_since;
	return w->half && nat_reassign(w) ? w->half : 0;
}

/* The packet's destination is a port that flows of ours may have. */
static __always_inline bool nat_port_range(__be16 port)
{
	struct settings *s = setting();
	__u16 at = bpf_ntohs(port);
	return s && ((at >= s->nat_ports[0][0] && at <= s->nat_ports[0][1]) ||
		     (at >= s->nat_ports[1][0] && at <= s->nat_ports[1][1]));
}
