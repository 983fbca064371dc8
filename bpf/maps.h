/* The maps. What they hold is in layout.h; sizes here are defaults, which the agent sets
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
MAP(frontends, HASH, 4096, struct frontend_key, struct frontend);
MAP(vips, HASH, 4096, struct address, __u32);
MAP(others, HASH, 4096, struct frontend_key, __u32);
MAP(links, ARRAY, 1, __u32, struct links);
MAP(backends, ARRAY, 65536, __u32, struct backend);
MAP(next_hops, ARRAY, 4096, __u32, struct next_hop);
MAP(quic_servers, HASH, 4096, struct quic_server_key, __u32);
MAP(locals, HASH, 4096, struct local_key, struct local);
MAP(circle, HASH, 4096, struct local_key, __u64);
MAP(machines, HASH, 4096, struct address, __u32);
MAP(hops, HASH, 65536, __u64, struct hop);
MAP(settings, ARRAY, 1, __u32, struct settings);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 20);
	__type(key, __u32);
	__type(value, row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct source_key);
	__type(value, __u32);
} sources SEC(".maps");

/* Written by the programs. */
MAP(flows, LRU_HASH, 1 << 20, struct flow_key, struct flow);
MAP(fresh, LRU_HASH, 1 << 17, struct flow_key, struct flow);
MAP(affinities, LRU_HASH, 1 << 16, struct affinity_key, struct affinity);
MAP(fragments, LRU_HASH, 1 << 14, struct fragment_key, struct fragment);
MAP(limits, ARRAY, 4096, __u32, __u64);
MAP(nat, LRU_HASH, 1 << 19, struct nat_key, struct nat);
MAP(nat_closed, LRU_HASH, 1 << 18, struct nat_key, struct nat);
MAP(owned, LRU_HASH, 1 << 19, struct flow_key, struct owned);
MAP(owned_fresh, LRU_HASH, 1 << 17, struct flow_key, struct owned);
MAP(restores, LRU_HASH, 1 << 19, struct restore_key, struct restore);
MAP(restores_fresh, LRU_HASH, 1 << 17, struct restore_key, struct restore);
MAP(tunnel_fragments, LRU_HASH, 1 << 14, struct fragment_key, struct tunnel_fragment);

/* Counters: by frontend.index, by place in backends, by enum reason. */
MAP(frontend_counters, PERCPU_ARRAY, 4096, __u32, struct counter);
MAP(backend_counters, PERCPU_ARRAY, 65536, __u32, struct counter);
MAP(drops, PERCPU_ARRAY, 64, __u32, __u64);
_Static_assert(REASON_COUNT <= 64, "drops has room for every reason");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} captures SEC(".maps");
