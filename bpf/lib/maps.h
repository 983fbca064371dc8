/* The maps of all programs. What they hold is in layout.h; sizes here are defaults, which the agent sets
 * before it loads the programs. */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "layout.h"
#include "reason.h"

#define MAP(name, kind, entries, k, v)             \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries);      \
		__type(key, k);                    \
		__type(value, v);                  \
	} name SEC(".maps")

/* What does not fit a program's stack: programs run to their end on a CPU. Sizes instead of
 * types, since Go has nothing to do with it. */
#define SCRATCH(name, v)                                 \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__uint(max_entries, 1);                  \
		__uint(key_size, sizeof(__u32));         \
		__uint(value_size, sizeof(v));           \
	} name SEC(".maps")

/* Written by the agent. */
MAP(links, ARRAY, 1, __u32, struct links);
MAP(next_hops, ARRAY, 4096, __u32, struct next_hop);
MAP(machines, HASH, 4096, struct address, __u32);
MAP(settings, ARRAY, 1, __u32, struct settings);

/* Counters, by enum reason. */
MAP(drops, PERCPU_ARRAY, 64, __u32, __u64);
_Static_assert(REASON_COUNT <= 64, "drops has room for every reason");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} captures SEC(".maps");
