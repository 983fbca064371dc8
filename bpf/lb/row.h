/* The lookup table: which backends a flow without an entry may belong to. */
#pragma once

#include "../lib/hash.h"
#include "../lib/parse.h"
#include "maps.h"

/* The hash that chooses the row: internal/lookup.Hash computes the same. */
static __always_inline __u64 flow_hash(const struct packet *p, __u8 by)
{
	__u64 h = 0x243F6A8885A308D3ull;
	h = hash_word(h, bpf_be64_to_cpu(p->source.halves[0]));
	h = hash_word(h, bpf_be64_to_cpu(p->source.halves[1]));
	if (by != HASH_SOURCE) {
		h = hash_word(h, bpf_be64_to_cpu(p->destination.halves[0]));
		h = hash_word(h, bpf_be64_to_cpu(p->destination.halves[1]));
		__u64 last = p->protocol;
		if (by == HASH_FIVE_TUPLE)
			last |= (__u64)bpf_ntohs(p->source_port) << 32 | (__u64)bpf_ntohs(p->destination_port) << 16;
		h = hash_word(h, last);
	}
	h ^= h >> 29;
	h *= 0xBF58476D1CE4E5B9ull;
	return h ^ (h >> 32);
}

static __always_inline row row_of(const struct frontend *f, __u64 hash)
{
	__u32 index = f->rows + ((__u32)hash & f->mask);
	row *r = bpf_map_lookup_elem(&rows, &index);
	return r ? *r : 0;
}

/* The index in backends of the i-th backend of a row; 0: there is none. */
static __always_inline __u32 backend_index(row r, int i)
{
	return (__u32)(r >> (ROW_BITS * i)) & ROW_MASK;
}

static __always_inline struct backend *backend_at(__u32 index)
{
	return index ? bpf_map_lookup_elem(&backends, &index) : 0;
}

/* Does the backend get its packets in a way that the short program knows: IP in IP or
 * Geneve, over the wire? */
static __always_inline int is_short(const struct backend *b)
{
	return (b->mode == MODE_IPIP || b->mode == MODE_GENEVE) && !(b->flags & BACKEND_HERE);
}

/* The first backend of a row that has a flag. Returns its place, or 0. */
static __always_inline __u32 first_with(row r, __u8 flag, struct backend **b)
{
#pragma unroll
	for (int i = 0; i < HOPS; i++) {
		__u32 at = backend_index(r, i);
		*b = backend_at(at);
		if (*b && ((*b)->flags & flag))
			return at;
	}
	return 0;
}

/* Which of a row gets a packet of a flow without an entry, which opens the flow or not. What
 * the first does not have it passes on, over Geneve: so it is not one that takes no new flows
 * and may be lost. Returns its place, or 0. */
static __always_inline __u32 chosen(row r, int opens, struct backend **b)
{
	__u32 at = first_with(r, opens ? BACKEND_NEW : BACKEND_READY, b);
	if (opens || !at || !*b || (*b)->mode != MODE_GENEVE || ((*b)->flags & BACKEND_NEW))
		return at;
	struct backend *other = 0;
	__u32 instead = first_with(r, BACKEND_NEW, &other);
	if (!instead || !other || other->mode != MODE_GENEVE)
		return at;
	*b = other;
	return instead;
}

/* The row of those that are to be asked of a flow that has an entry, which is doubted: those
 * that take new flows, but for the third, the entry's own backend, the others. */
static __always_inline row asking(row r, __u32 own)
{
	row out = 0;
	__u32 count = 0;
#pragma unroll
	for (int i = 0; i < HOPS; i++) {
		struct backend *b = backend_at(backend_index(r, i));
		if (count < HOPS - 1 && b && (b->flags & BACKEND_NEW))
			out |= (row)backend_index(r, i) << (ROW_BITS * count++);
	}
	out |= (row)own << (ROW_BITS * count++);
#pragma unroll
	for (int i = 0; i < HOPS; i++) {
		struct backend *b = backend_at(backend_index(r, i));
		if (count < HOPS && b && !(b->flags & BACKEND_NEW) && backend_index(r, i) != own)
			out |= (row)backend_index(r, i) << (ROW_BITS * count++);
	}
	return out;
}

/* Whose turn it is, in order, when a packet goes through a tunnel. */
struct turns {
	__u64 ids[HOPS];
	__u8 count;
};

/* The backend that was chosen, then the others of the row that may have the flow: those that
 * take new flows first. One that takes none may be a machine that is lost, where what is
 * passed on ends. */
static __always_inline void order_turns(struct turns *t, const struct backend *chosen, row r)
{
	t->ids[0] = chosen->id;
	t->ids[1] = 0;
	t->ids[2] = 0;
	t->count = 1;
	__u8 second = BACKEND_NEW;
#pragma unroll
	for (int i = 0; i < HOPS; i++) {
		struct backend *b = backend_at(backend_index(r, i));
		if (!b || b == chosen || b->id == chosen->id || !(b->flags & BACKEND_READY))
			continue;
		if (!t->ids[1]) {
			t->ids[1] = b->id;
			t->count = 2;
			second = b->flags;
		} else if (!t->ids[2]) {
			bool ahead = !(second & BACKEND_NEW) && (b->flags & BACKEND_NEW);
			t->ids[2] = ahead ? t->ids[1] : b->id;
			if (ahead)
				t->ids[1] = b->id;
			t->count = 3;
		}
	}
}
