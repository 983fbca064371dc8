/* The time as maps hold it: seconds since boot. */
#pragma once

#include "maps.h"

static __always_inline __u32 seconds(void)
{
	return bpf_ktime_get_coarse_ns() / 1000000000ull;
}
