/* The load balancer's maps. What they hold is in layout.h. */
#pragma once

#include "../lib/maps.h"
#include "layout.h"

/* Written by the agent. */
MAP(frontends, HASH, 4096, struct frontend_key, struct frontend);
MAP(vips, HASH, 4096, struct address, __u32);
MAP(others, HASH, 4096, struct frontend_key, __u32);
MAP(backends, ARRAY, 65536, __u32, struct backend);
MAP(quic_servers, HASH, 4096, struct quic_server_key, __u32);
MAP(locals, HASH, 4096, struct local_key, struct local);
MAP(circle, HASH, 4096, struct local_key, __u64);
MAP(hops, HASH, 65536, __u64, struct hop);

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

/* Written by both. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct watch);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} flow_events SEC(".maps");

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

/* Counters: by frontend.index, by index in backends. */
MAP(frontend_counters, PERCPU_ARRAY, 4096, __u32, struct counter);
MAP(backend_counters, PERCPU_ARRAY, 65536, __u32, struct counter);
