/* The load balancer for benchmarks: the same program in a loop, on packets that are made
 * anew each time. Not part of what agents load. */
#include "lb.c"

char _license[] SEC("license") = "GPL";

struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

/* What the packets are. */
struct course {
	__u32 loops;  /* no more than the tail calls that one run may make */
	__u32 first;  /* number of the first packet */
	__u32 flows;  /* a power of two; packets take them in turn */
	__u32 vips;   /* flows are spread over them */
	__u8 harness; /* make and undo packets, but do not balance them */
	__u8 room;    /* of the encapsulation that harness pretends, bytes */
	__u8 version; /* 4 or 6 */
	__u8 protocol;
	__u8 tcp_flags;
	__u8 zero[3];
	__u64 sent;  /* out: packets with verdict XDP_TX or XDP_REDIRECT */
	__u64 other; /* out: all others */
};

MAP(courses, ARRAY, 1, __u32, struct course);
MAP(arrivals, PERCPU_ARRAY, 1, __u32, __u64); /* of live frames */

#define SIZE4 (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct tcphdr))
#define SIZE6 (sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + sizeof(struct tcphdr))

/* Writes packet n. Only the address of the client, its port and the VIP depend on it. */
__noinline int write_packet(struct xdp_md *xdp, __u32 n)
{
	__u32 zero = 0;
	struct course *c = bpf_map_lookup_elem(&courses, &zero);
	if (!c)
		return 1;
	void *data = (void *)(long)xdp->data;
	void *end = (void *)(long)xdp->data_end;
	__u32 flow = n & (c->flows - 1);
	__u32 client = 0x0a000000 | (flow & 0xffffff);
	/* Neighbours in time are not neighbours in the flow table anyway: a hash is between. */
	__u32 vip = c->vips > 1 ? (flow * 2654435761u >> 8) % c->vips : 0;
	__u16 port = 1024 + (flow & 0x3ff) + (flow >> 24);
	struct ethhdr *eth = data;
	void *transport;
	if (data + SIZE4 > end)
		return 1;
	*(__u64 *)data = 0x0200010000000002ull;
	*(__u32 *)(data + 8) = 0x02000000;
	if (c->version == 4) {
		eth->h_proto = bpf_htons(ETH_P_IP);
		__u32 *ip = data + sizeof(*eth);
		transport = data + sizeof(*eth) + sizeof(struct iphdr);
		__u32 length = end - data - sizeof(*eth);
		ip[0] = 0x45 | (__u32)bpf_htons(length) << 16;
		ip[1] = 0;
		ip[3] = bpf_htonl(client);
		ip[4] = bpf_htonl(0xcb007100 + vip);
		ip[2] = 64 | (__u32)c->protocol << 8;
		ip[2] |= (__u32)(__u16)~fold((__u64)ip[0] + ip[2] + ip[3] + ip[4]) << 16;
	} else {
		if (data + SIZE6 > end)
			return 1;
		eth->h_proto = bpf_htons(ETH_P_IPV6);
		__u32 *ip = data + sizeof(*eth);
		transport = data + sizeof(*eth) + sizeof(struct ipv6hdr);
		ip[0] = bpf_htonl(6u << 28);
		ip[1] = bpf_htons(end - data - sizeof(*eth) - sizeof(struct ipv6hdr)) | (__u32)c->protocol << 16 |
			64u << 24;
		ip[2] = bpf_htonl(0x20010db8);
		ip[3] = ip[4] = 0;
		ip[5] = bpf_htonl(client);
		ip[6] = bpf_htonl(0x20010db8);
		ip[7] = bpf_htonl(1);
		ip[8] = 0;
		ip[9] = bpf_htonl(vip);
	}
	if (transport + sizeof(struct tcphdr) > end)
		return 1;
	__u32 *words = transport;
	words[0] = bpf_htons(port) | (__u32)bpf_htons(80) << 16;
	if (c->protocol == IPPROTO_TCP) {
		words[3] = 0x50 | (__u32)c->tcp_flags << 8;
	} else {
		words[1] = bpf_htons(end - transport);
	}
	return 0;
}

/* Takes the outer headers away again. */
__noinline int undo(struct xdp_md *xdp, __u32 size)
{
	__u32 now = xdp->data_end - xdp->data;
	return now == size ? 0 : bpf_xdp_adjust_head(xdp, (int)(now - size));
}

__noinline int one(struct xdp_md *xdp)
{
	return balance(xdp);
}

SEC("xdp.frags")
int measure(struct xdp_md *xdp)
{
	__u32 zero = 0;
	struct course *c = bpf_map_lookup_elem(&courses, &zero);
	if (!c)
		return XDP_ABORTED;
	__u32 size = xdp->data_end - xdp->data, first = c->first;
	__u64 sent = 0, other = 0;
	__u8 harness = c->harness, room = c->room;
	struct bpf_iter_num it;
	int *i;
	bpf_iter_num_new(&it, 0, c->loops);
	while ((i = bpf_iter_num_next(&it))) {
		if (write_packet(xdp, first + *i))
			break;
		int verdict = XDP_TX;
		if (!harness)
			verdict = one(xdp);
		else if (room && bpf_xdp_adjust_head(xdp, -(int)room))
			break;
		if (verdict == XDP_TX || verdict == XDP_REDIRECT)
			sent++;
		else
			other++;
		if (undo(xdp, size))
			break;
	}
	bpf_iter_num_destroy(&it);
	c = bpf_map_lookup_elem(&courses, &zero);
	if (c) {
		c->first = first + c->loops; /* where the next repetition goes on */
		c->sent += sent;
		c->other += other;
	}
	return XDP_PASS;
}

/* Live frames: each goes out as the load balancer would send it. */
SEC("xdp.frags")
int live(struct xdp_md *xdp)
{
	__u32 zero = 0;
	struct course *c = bpf_map_lookup_elem(&courses, &zero);
	if (!c)
		return XDP_ABORTED;
	if (write_packet(xdp, c->first++))
		return XDP_ABORTED;
	return one(xdp);
}

/* The other end of the wire. */
SEC("xdp")
int sink(struct xdp_md *xdp)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&arrivals, &zero);
	if (n)
		(*n)++;
	return XDP_DROP;
}

const struct course *export_course __attribute__((unused));
const enum mode *export_mode __attribute__((unused));
const enum frontend_flag *export_frontend_flag __attribute__((unused));
const enum backend_flag *export_backend_flag __attribute__((unused));
const enum next_hop_flag *export_next_hop_flag __attribute__((unused));
