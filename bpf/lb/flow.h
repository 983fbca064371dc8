/* The flow table: to which backend a flow was sent before. */
#pragma once

#include "../lib/clock.h"
#include "../lib/count.h"
#include "../lib/parse.h"
#include "admit.h"
#include "maps.h"
#include "row.h"
#include "watch.h"

/* After so long a silence an UDP flow is a new one: nobody says when it ends. RFC 4787, 4.3
 * wants at least two minutes of a NAT. */
const volatile __u32 udp_idle = 180;

/* Is it the first packet of a connection? Flags that contradict each other do not count. */
static __always_inline int is_syn(const struct packet *p)
{
	return p->protocol == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

static __always_inline void flow_key_of(struct flow_key *key, const struct packet *p, const struct frontend *f)
{
	key->client = p->source;
	key->frontend = f->index;
	key->port = f->hash == HASH_FIVE_TUPLE ? p->source_port : 0;
	key->zero = 0;
}

/* A flow of TCP that was silent for so many seconds may be over, and the client's port
 * another flow's by now: one side may have given up what the other never heard the end of. */
#define SILENT 2

/* How long a SYN over Geneve belongs to the flow that has an entry, in seconds: it repeats
 * another, or is forged. */
#define REPEATED 60

/* Is the entry to be doubted? Its backend is at another machine, which takes no new flows, so
 * it may be lost, and what is sent there with it; and the flow may be another one, that began
 * elsewhere and was balanced elsewhere. */
static __always_inline int doubtful(const struct flow *flow, const struct backend *b, const struct packet *p, __u32 now)
{
	return (b->flags & (BACKEND_READY | BACKEND_NEW | BACKEND_HERE)) == BACKEND_READY && b->mode == MODE_GENEVE &&
	       b->generation == flow->generation && p->protocol == IPPROTO_TCP && !is_syn(p) &&
	       (flow->state == FLOW_CLOSING || (__s32)(now - flow->seen) >= SILENT);
}

/* May the packet follow the entry? A SYN begins something new, for which the backend must
 * take new flows, unless it repeats one. */
static __always_inline int follows(const struct flow *flow, const struct flow_key *key, const struct backend *b,
				   const struct packet *p, __u32 now)
{
	if (!b || b->generation != flow->generation)
		return 0;
	if (unlikely(is_syn(p))) {
		/* The client's port is used again: where other load balancers ask must be who has it. */
		if (b->mode == MODE_GENEVE && key->port && (__s32)(now - flow->seen) > REPEATED)
			return 0;
		return (b->flags & BACKEND_NEW) && flow->state != FLOW_CLOSING;
	}
	if (p->protocol == IPPROTO_UDP && (__s32)(now - flow->seen) > (__s32)udp_idle)
		return 0;
	if (unlikely(doubtful(flow, b, p, now)))
		return 0;
	return b->flags & BACKEND_READY;
}

/* Remembers that the client was heard of. */
static __noinline int refresh_affinity(const struct flow_key *key, __u32 backend, __u8 generation, __u32 now)
{
	struct affinity_key at = {.client = key->client, .frontend = key->frontend};
	struct affinity *a = bpf_map_lookup_elem(&affinities, &at);
	if (a && a->backend == backend && a->generation == generation) {
		a->seen = now;
		return 0;
	}
	struct affinity value = {.backend = backend, .seen = now, .generation = generation};
	bpf_map_update_elem(&affinities, &at, &value, BPF_ANY);
	return 0;
}

/* The backend that the client has, if it takes new flows. Returns its place, or 0. */
static __noinline __u32 affine(const struct flow_key *key, __u32 patience, __u32 now)
{
	struct affinity_key at = {.client = key->client, .frontend = key->frontend};
	struct affinity *a = bpf_map_lookup_elem(&affinities, &at);
	if (!a || (__s32)(now - a->seen) > (__s32)patience)
		return 0;
	struct backend *b = backend_at(a->backend);
	return b && b->generation == a->generation && (b->flags & BACKEND_NEW) ? a->backend : 0;
}

/* Writes down that a packet followed the entry. Written only when something changes: the
 * line may be in another CPU's cache. */
static __always_inline void note(struct flow *flow, const struct flow_key *key, const struct packet *p,
				 const struct frontend *f, __u32 now)
{
	if (unlikely(flow->seen != now)) {
		flow->seen = now;
		if (f->flags & FRONTEND_AFFINITY)
			refresh_affinity(key, flow->backend, flow->generation, now);
	}
	/* Where one entry stands for many connections, none of them ends it. */
	if (unlikely(p->tcp_flags & (TCP_FIN | TCP_RST)) && f->hash == HASH_FIVE_TUPLE) {
		tell_end(key, flow, p->tcp_flags, 0);
		flow->state = FLOW_CLOSING;
	}
}

/* The second packet of a flow: it is none of a flood's, so the entry moves to flows. */
static __always_inline void establish(const struct flow_key *key, const struct flow *flow, const struct packet *p,
				      const struct frontend *f, __u32 now)
{
	struct flow copy = *flow;
	copy.seen = now;
	copy.state = FLOW_ESTABLISHED;
	if (unlikely(p->tcp_flags & (TCP_FIN | TCP_RST)) && f->hash == HASH_FIVE_TUPLE) {
		tell_end(key, flow, p->tcp_flags, 0);
		copy.state = FLOW_CLOSING;
	}
	if (f->flags & FRONTEND_AFFINITY)
		refresh_affinity(key, copy.backend, copy.generation, now);
	/* Another CPU may have seen its end at the same time, which stays. */
	if (bpf_map_update_elem(&flows, key, &copy, copy.state == FLOW_CLOSING ? BPF_ANY : BPF_NOEXIST) == 0)
		bpf_map_delete_elem(&fresh, key);
}

/* What keeps flows of a mode: a tunnel's other end knows its flows itself. */
static __always_inline int keeps(const struct backend *b, const struct packet *p, int opens)
{
	if (opens)
		return 1;
	if (b->mode == MODE_GENEVE)
		return 0;
	return !(p->tcp_flags & (TCP_FIN | TCP_RST));
}

/* For packets that the short program does not take. Nothing was changed yet. */
#define LONG_WAY (-REASON_COUNT)

/* The place of the backend of a packet whose flow is not in flows, or a reason, negative.
 * stale is the entry in flows that it could not follow, or null. begins is set if a flow
 * begins. brief, a constant: return LONG_WAY when the backend is not for the short program. */
static __always_inline int begin(const struct packet *p, const struct frontend *f, const struct flow_key *key,
				 const struct flow *stale, __u32 now, __u32 *begins, int brief)
{
	int opens = p->protocol == IPPROTO_UDP || is_syn(p);
	struct flow *flow = stale ? 0 : bpf_map_lookup_elem(&fresh, key);
	struct backend *b = 0;
	__u32 at = 0;
	if (flow) {
		at = flow->backend;
		b = backend_at(at);
		if (b && follows(flow, key, b, p, now)) {
			if (brief && !is_short(b))
				return LONG_WAY;
			if (is_syn(p)) { /* again: it may still be a flood */
				if (flow->seen != now)
					flow->seen = now;
			} else {
				establish(key, flow, p, f, now);
			}
			return at;
		}
	}
	at = !brief && opens && (f->flags & FRONTEND_AFFINITY) ? affine(key, f->affinity, now) : 0;
	if (at)
		b = backend_at(at);
	else
		at = chosen(row_of(f, flow_hash(p, f->hash)), opens, &b);
	if (brief && b && !is_short(b))
		return LONG_WAY;
	if (martian(p))
		return -REASON_MARTIAN;
	if (!at || !b)
		return -REASON_NO_BACKEND;
	if (!brief && opens && (f->flags & FRONTEND_LIMITED) && !within_limit(f))
		return -REASON_NEW_FLOW_LIMIT;
	if (stale || keeps(b, p, opens)) /* else the backend's machine knows its flows */
		tell_begin(key, p, stale ? stale : flow, at, udp_idle);
	if (stale)
		bpf_map_delete_elem(&flows, key);
	if (keeps(b, p, opens)) {
		struct flow entry;
		entry.backend = at;
		entry.seen = now;
		entry.nat_port = 0;
		entry.generation = b->generation;
		entry.state = opens ? FLOW_NEW : FLOW_ESTABLISHED;
		entry.zero = 0;
		if (bpf_map_update_elem(&fresh, key, &entry, BPF_ANY))
			count_reason(REASON_MAP_FULL);
	}
	*begins = opens;
	return at;
}
