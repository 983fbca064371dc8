/* Fragments of a datagram follow its first one, which has the ports. */
#pragma once

#include "../lib/count.h"
#include "../lib/parse.h"
#include "maps.h"
#include "row.h"
#include "send.h"
#include "work.h"

static __always_inline void fragment_key_of(struct fragment_key *key, const struct packet *p)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->source = p->source;
	key->destination = p->destination;
	key->id = p->fragment;
	key->protocol = p->version == 4 ? p->protocol : 0; /* over IPv6 fragments may disagree (RFC 8200, 4.5) */
}

/* Where the datagram goes whose first fragment this is. f is null when that is no business
 * of ours, way when it can be computed. */
static __always_inline void remember_fragment(const struct packet *p, const struct frontend *f, __u32 at,
					      const struct backend *b, const struct way *way, __u32 now)
{
	struct work *w = work();
	if (!w)
		return;
	fragment_key_of(&w->fragment, p);
	__builtin_memset(&w->known, 0, sizeof(w->known));
	w->known.seen = now;
	if (f && b) {
		w->known.backend = at;
		w->known.frontend = f->index;
		w->known.generation = b->generation;
		if (b->mode == MODE_GENEVE)
			w->known.row = way ? way->row : row_of(f, flow_hash(p, f->hash));
	}
	if (bpf_map_update_elem(&fragments, &w->fragment, &w->known, BPF_ANY))
		count_reason(REASON_MAP_FULL);
}

/* Sends a fragment that is not the first. */
static __always_inline int follow_fragment(struct packet *p, __u32 now)
{
	struct work *w = work();
	if (!w)
		return -REASON_INTERNAL;
	fragment_key_of(&w->fragment, p);
	struct fragment *known = bpf_map_lookup_elem(&fragments, &w->fragment);
	/* Identifications come again; datagrams are not put together after a minute
	 * (RFC 8200, 4.5), in Linux after half of one. */
	if (!known || (__s32)(now - known->seen) > 60)
		return -REASON_FRAGMENT;
	if (!known->backend)
		return XDP_PASS;
	__u32 at = known->backend;
	struct backend *b = backend_at(at);
	if (!b || b->generation != known->generation || !(b->flags & BACKEND_READY))
		return -REASON_FRAGMENT;
	struct frontend f = {.index = known->frontend};
	if (b->mode == MODE_NAT) {
		struct flow flow = {.backend = at};
		return send_nat(p, &f, at, b, &flow);
	}
	struct way way = {.row = known->row, .hash = (__u64)p->fragment * 0x9E3779B97F4A7C15ull};
	return send(p, &f, at, b, &way, 0, 0);
}
