/* Flows as they begin, move and end, for whoever watches their frontend. */
#pragma once

#include "../lib/clock.h"
#include "../lib/parse.h"
#include "maps.h"

/* What is watched of the frontend of a flow; null: nothing. Called where a flow begins or ends,
 * and for no other packet. */
static __always_inline struct watch *watch_of(const struct flow_key *key)
{
	struct watch *w = bpf_map_lookup_elem(&watched, &key->frontend);
	return w && unlikely(w->until) && (__s32)(w->until - seconds()) >= 0 ? w : 0;
}

/* Tells of a flow, or counts that there is no room for that. */
static __always_inline void tell(struct watch *w, const struct flow_key *key, __u8 kind, __u8 reason,
				 const struct flow *before, __u32 backend)
{
	struct flow_event *e = 0;
	if (w->left > 0) {
		__sync_fetch_and_add(&w->left, -1);
		e = bpf_ringbuf_reserve(&flow_events, sizeof(*e), 0);
	}
	if (!e) {
		__sync_fetch_and_add(&w->lost, 1);
		return;
	}
	e->at = bpf_ktime_get_ns();
	e->flow = *key;
	e->backend = backend;
	e->from = before ? before->backend : 0;
	e->kind = kind;
	e->reason = reason;
	e->from_generation = before ? before->generation : 0;
	e->zero = 0;
	e->padding = 0;
	bpf_ringbuf_submit(e, 0);
}

/* A flow goes to a backend, at. before is the entry that it could not follow, or null. */
static __noinline int tell_begin(const struct flow_key *key, const struct packet *p, const struct flow *before,
				 __u32 at, __u32 idle)
{
	struct watch *w = watch_of(key);
	if (likely(!w))
		return 0;
	__u8 kind = FLOW_EVENT_MOVE, reason = FLOW_REASON_UNREADY;
	int syn = p->protocol == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	if (!before) {
		kind = FLOW_EVENT_BEGIN;
		reason = syn || p->protocol == IPPROTO_UDP ? FLOW_REASON_NONE : FLOW_REASON_MIDFLOW;
	} else if (syn && before->state != FLOW_NEW) {
		kind = FLOW_EVENT_BEGIN;
		reason = FLOW_REASON_AGAIN;
	} else if (p->protocol == IPPROTO_UDP && (__s32)(seconds() - before->seen) > (__s32)idle) {
		kind = FLOW_EVENT_BEGIN;
		reason = FLOW_REASON_IDLE;
	} else {
		__u32 place = before->backend;
		struct backend *b = bpf_map_lookup_elem(&backends, &place);
		if (!b || b->generation != before->generation)
			reason = FLOW_REASON_GONE;
	}
	tell(w, key, kind, reason, before, at);
	return 0;
}

/* One side of a flow ended it. */
static __noinline int tell_end(const struct flow_key *key, const struct flow *flow, __u32 flags, __u32 backend)
{
	struct watch *w = watch_of(key);
	if (likely(!w) || flow->state == FLOW_CLOSING)
		return 0;
	__u8 reason = flags & TCP_RST ? FLOW_REASON_RESET : FLOW_REASON_END;
	if (backend)
		reason = flags & TCP_RST ? FLOW_REASON_BACKEND_RESET : FLOW_REASON_BACKEND_END;
	tell(w, key, FLOW_EVENT_END, reason, 0, flow->backend);
	return 0;
}
