/* Token buckets: limits of so many events a second. */
#pragma once

#include "maps.h"

/* A bucket that holds a second's worth of tokens, as the time when it will be full again
 * (the generic cell rate algorithm, ITU-T I.371). Returns whether there was one. CPUs that
 * take at the same time try again; who loses four times is let in. */
static __noinline int spend_token(__u64 *full, __u32 rate)
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
