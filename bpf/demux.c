/* The demultiplexer: what comes in at the machine's interfaces, after XDP. Packets that come out of
 * tunnels go to whom their VNI belongs. */
#include "lb/tunnel.c"

enum consumer {
	CONSUMER_NONE, /* somebody else's tunnel: it passes as it is */
	CONSUMER_LB,
};

static __always_inline enum consumer consumer_of(const struct tunnel_header *h)
{
	if (vni_of(h) == LB_VNI)
		return CONSUMER_LB;
	/* No VNI of its own: the load balancer drops and counts what has its option all the same. */
	return has_hops(h) ? CONSUMER_LB : CONSUMER_NONE;
}

SEC("tcx/ingress")
int tunnel_in(struct __sk_buff *skb)
{
	int verdict;
	bool here;
	if (resend(skb, &verdict, &here))
		return verdict;
	struct outer outer;
	struct tunnel_header header;
	if (!read_tunnel(skb, &outer, &header)) {
		lb_direct(skb);
		return TCX_ACTION_NEXT;
	}
	switch (consumer_of(&header)) {
	case CONSUMER_LB:
		return lb_tunnel(skb, &outer, &header, here);
	case CONSUMER_NONE:
		break;
	}
	return TCX_ACTION_NEXT;
}
