/* Counters, and the end of packets that are dropped. */
#pragma once

#include "maps.h"
#include "parse.h"

static __always_inline struct settings *setting(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&settings, &zero);
}

static __always_inline void count(void *map, __u32 index, __u32 bytes, __u32 flows)
{
	struct counter *c = bpf_map_lookup_elem(map, &index);
	if (!c)
		return;
	c->packets++;
	c->bytes += bytes;
	c->flows += flows;
}

static __always_inline void count_reason(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&drops, &reason);
	if (n)
		(*n)++;
}

/* Writes the beginning of the packet to captures. Global functions are verified once, not
 * for every call. */
__noinline int record(struct xdp_md *xdp, __u32 reason)
{
	struct capture *c = bpf_ringbuf_reserve(&captures, sizeof(*c), 0);
	if (!c)
		return 0;
	__u64 length = bpf_xdp_get_buff_len(xdp);
	c->at = bpf_ktime_get_ns();
	c->reason = reason;
	c->device = xdp->ingress_ifindex;
	c->length = length;
	if (length > CAPTURED)
		length = CAPTURED;
	c->bytes = length;
	/* Keeps the range in a register: the verifier loses it in memory. */
	asm volatile("" : "+r"(length));
	if (length == 0 || length > CAPTURED || bpf_xdp_load_bytes(xdp, 0, c->data, length))
		bpf_ringbuf_discard(c, 0);
	else
		bpf_ringbuf_submit(c, 0);
	return 0;
}

/* Drops the packet and says why. reason may have either sign. */
__noinline int drop(struct xdp_md *xdp, int reason)
{
	if (reason < 0)
		reason = -reason;
	count_reason(reason);
	struct settings *s = setting();
	if (s && s->capture)
		record(xdp, reason);
	return XDP_DROP;
}
