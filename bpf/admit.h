/* Who is let in: sources that cannot be, source ranges, the limit of new flows. */
#pragma once

#include "maps.h"
#include "parse.h"

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

/* A bucket that holds a second's worth of tokens, as the time when it will be full again
 * (the generic cell rate algorithm, ITU-T I.371). Returns whether there was one. CPUs that
 * take at the same time try again; who loses four times is let in. */
static __noinline int take_token(__u64 *full, __u32 rate)
{
	if (!full || !rate)
		return 1;
	__u64 step = 1000000000ull / rate;
	__u64 now = bpf_ktime_get_ns();
	for (int i = 0; i < 4; i++) {
		__u64 was = *full;
		__u64 next = (was > now ? was : now) + step;
		if (next > now + 1000000000ull + step)
			return 0;
		if (__sync_val_compare_and_swap(full, was, next) == was)
			return 1;
	}
	return 1;
}

static __always_inline int within_limit(const struct frontend *f)
{
	__u32 index = f->index;
	return take_token(bpf_map_lookup_elem(&limits, &index), f->limit);
}
