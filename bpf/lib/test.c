/* Programs for the tests of what drivers share (internal/driver/bpf): they know these headers
 * alone, and use every shared map. Nobody else loads them. */
#include "link.h"
#include "skb.h"
#include "tunnel.h"

char _license[] SEC("license") = "GPL";

MAP(entries, HASH, 16, __u32, __u32);

SEC("xdp.frags")
int last(struct xdp_md *xdp)
{
	return drop(xdp, REASON_NO_ROUTE);
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, int(void *));
} programs SEC(".maps") = {.values = {[0] = (void *)&last}};

/* Drops, by a tail call, frames for this machine. */
SEC("xdp.frags")
int first(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data;
	if (data + sizeof(struct ethhdr) > (void *)(long)xdp->data_end || !for_us(data))
		return XDP_PASS;
	__u32 key = 1;
	if (!bpf_map_lookup_elem(&entries, &key) || !bpf_map_lookup_elem(&next_hops, &key))
		return XDP_PASS;
	bpf_tail_call(xdp, &programs, 0);
	return XDP_PASS;
}

/* Drops tunnels from endpoints that nobody listed. */
SEC("tcx/ingress")
int in(struct __sk_buff *skb)
{
	struct outer outer;
	struct tunnel_header header;
	if (!read_tunnel(skb, &outer, &header) || bpf_map_lookup_elem(&machines, &outer.remote))
		return TCX_ACTION_NEXT;
	return skb_drop(skb, REASON_NOT_A_TUNNEL);
}

SEC("tcx/egress")
int out(struct __sk_buff *skb)
{
	return TCX_ACTION_NEXT;
}
