/* The load balancer: an XDP program. */
#include "count.h"
#include "maps.h"
#include "nat.h"
#include "parse.h"
#include "route.h"

SEC("xdp.frags")
int balance(struct xdp_md *xdp)
{
	struct packet p = {.xdp = xdp, .end = (void *)(long)xdp->data_end};
	__be16 protocol = parse_link(&p, (void *)(long)xdp->data);
	int bad = parse_addresses(&p, protocol);
	if (bad)
		return XDP_PASS;
	bad = p.version == 4 ? parse_ip4(&p, bpf_xdp_get_buff_len(xdp) - p.link) :
			       parse_ip6(&p, bpf_xdp_get_buff_len(xdp) - p.link);
	if (bad)
		return drop(xdp, bad);
	bad = parse_transport(&p);
	if (bad)
		return drop(xdp, bad);
	return nat_back(&p);
}
