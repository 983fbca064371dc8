/* Which frames are for this machine. */
#pragma once

#include "maps.h"
#include "parse.h"

/* for_us of what is not for the first two link addresses. */
static __noinline int for_other_link(__u64 to)
{
	__u32 zero = 0;
	struct links *l = bpf_map_lookup_elem(&links, &zero);
	if (to & 1 << 16) /* frames to a group reach many, and the kernel knows what to do with them */
		return 0;
	if (!l || !l->at[0])
		return 1;
	for (int i = 2; i < LINKS; i++)
		if (l->at[i] == to)
			return 1;
	return 0;
}

/* Is the frame, of which at least 8 bytes are in bounds, for this machine? Interfaces that
 * are promiscuous, and those of switches that flood, see others' frames too. */
static __always_inline int for_us(const void *frame)
{
	__u32 zero = 0;
	struct links *l = bpf_map_lookup_elem(&links, &zero);
	__u64 to = load64(frame) << 16;
	if (likely(l && (to == l->at[0] || to == l->at[1])))
		return 1;
	return for_other_link(to);
}
