/* How packets end in tcx programs: dropped with a reason, or sent. */
#pragma once

#include "count.h"
#include "datagram.h"
#include "route.h"

/* Flags of bpf_skb_adjust_room, Linux 6.3. */
#ifndef BPF_F_ADJ_ROOM_DECAP_L3_IPV4
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV4 (1ULL << 7)
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV6 (1ULL << 8)
#endif

/* enum tcx_action_base of Linux 6.6, for older headers. */
#define TCX_ACTION_NEXT -1
#define TCX_ACTION_DROP 2

/* Writes the beginning of the packet to captures. */
__noinline int skb_record(struct __sk_buff *skb, __u32 reason)
{
	struct capture *c = bpf_ringbuf_reserve(&captures, sizeof(*c), 0);
	if (!c)
		return 0;
	__u64 length = skb->len;
	c->at = bpf_ktime_get_ns();
	c->reason = reason;
	c->device = skb->ifindex;
	c->length = length;
	if (length > CAPTURED)
		length = CAPTURED;
	c->bytes = length;
	asm volatile("" : "+r"(length)); /* see record */
	if (length == 0 || length > CAPTURED || bpf_skb_load_bytes(skb, 0, c->data, length))
		bpf_ringbuf_discard(c, 0);
	else
		bpf_ringbuf_submit(c, 0);
	return 0;
}

/* Drops the packet and says why. */
__noinline int skb_drop(struct __sk_buff *skb, int reason)
{
	count_reason(reason);
	struct settings *s = setting();
	if (s && s->capture)
		skb_record(skb, reason);
	return TCX_ACTION_DROP;
}

static __always_inline int store_protocol(struct __sk_buff *skb, bool v6)
{
	__be16 protocol = v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	return bpf_skb_store_bytes(skb, LINK_HEADER - 2, &protocol, sizeof(protocol), 0);
}

/* Sends a packet that is right but for its link header to where its IP header says, as the
 * kernel's routes and neighbours lead; the kernel resolves the neighbour if need be. It
 * is meant to leave by this interface when the routes cannot be asked, as on machines that
 * do not forward. */
static __always_inline int skb_route(struct __sk_buff *skb, const struct address *from, const struct address *to)
{
	struct bpf_fib_lookup fib = {.ifindex = LOOPBACK};
	if (is4(to)) {
		fib.family = AF_INET;
		fib.ipv4_src = from->words[3];
		fib.ipv4_dst = to->words[3];
	} else {
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, from, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, to, sizeof(fib.ipv6_dst));
	}
	__u32 device = skb->ifindex;
	long r = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	if (r == BPF_FIB_LKUP_RET_SUCCESS || r == BPF_FIB_LKUP_RET_NO_NEIGH)
		device = fib.ifindex;
	else if (r != BPF_FIB_LKUP_RET_FWD_DISABLED && r != BPF_FIB_LKUP_RET_NOT_FWDED)
		return skb_drop(skb, REASON_NO_ROUTE);
	return bpf_redirect_neigh(device, NULL, 0, 0);
}

/* Sends a packet to a next hop that the agent resolved, else by the kernel's routes. */
static __always_inline int skb_forward(struct __sk_buff *skb, struct next_hop *nh, const struct address *from,
				       const struct address *to)
{
	if (!nh || !nh->device)
		return skb_route(skb, from, to);
	if (bpf_skb_store_bytes(skb, 0, nh->to, 6, 0) || bpf_skb_store_bytes(skb, 6, nh->from, 6, 0))
		return skb_drop(skb, REASON_INTERNAL);
	__u32 device = nh->device;
	__u16 vlan = nh->vlan;
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return skb_drop(skb, REASON_INTERNAL);
	if (vlan && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), vlan))
		return skb_drop(skb, REASON_INTERNAL);
	return bpf_redirect(device, 0);
}

/* Sends packets that the XDP program left to us. Returns false if this is none of them; here
 * is set when that program put it into a tunnel. */
static __always_inline bool resend(struct __sk_buff *skb, int *verdict, bool *here)
{
	struct resend *r = (void *)(long)skb->data_meta;
	*here = false;
	if ((void *)(r + 1) > (void *)(long)skb->data || r->magic != RESEND)
		return false;
	if (!r->device) {
		*here = true;
		return false;
	}
	*verdict = bpf_redirect_neigh(r->device, NULL, 0, 0);
	return true;
}
