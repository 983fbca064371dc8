/* Hashes. */
#pragma once

#include <linux/types.h>

/* The hash of all words before, with one more. */
static __always_inline __u64 hash_word(__u64 h, __u64 x)
{
	h = (h ^ x) * 0x9E3779B97F4A7C15ull;
	return h ^ (h >> 32);
}
