/* What does not fit the stack of the XDP programs. */
#pragma once

#include "../lib/parse.h"
#include "maps.h"

/* Which of a row's backends a packet says it may belong to, and what of the flow routers on
 * the way may tell apart. Of a later fragment it is remembered: nothing can be computed. */
struct way {
	row row;
	__u64 hash;
};

struct work {
	struct packet quoted;
	struct next_hop way;
	struct fragment_key fragment;
	struct fragment known;
	struct way asked;
};

SCRATCH(works, struct work);

static __always_inline struct work *work(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&works, &zero);
}
