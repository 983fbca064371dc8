/* ICMP errors about packets of flows go where the flows go. */
#pragma once

#include "../lib/parse.h"
#include "flow.h"
#include "maps.h"
#include "row.h"
#include "send.h"
#include "work.h"

/* Is it an error? Echoes, neighbour discovery and the like are the kernel's. */
static __always_inline int is_icmp_error(const struct packet *p, __u8 type)
{
	if (p->version == 4)
		return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
	return type >= ICMPV6_DEST_UNREACH && type <= ICMPV6_PARAMPROB;
}

/* An ICMP message to a VIP. */
static __always_inline int deliver_icmp(struct packet *p)
{
	struct icmphdr *icmp = p->transport;
	if ((void *)(icmp + 1) > p->end || p->header + sizeof(*icmp) > p->length)
		return -REASON_TRUNCATED;
	if (!is_icmp_error(p, icmp->type))
		return XDP_PASS;
	struct work *w = work();
	if (!w)
		return -REASON_INTERNAL;
	struct packet *quoted = &w->quoted;
	int bad = read_packet(p->xdp, quoted, p->link + p->header + sizeof(*icmp));
	if (bad)
		return bad < 0 ? bad : -REASON_TRUNCATED;
	if (quoted->version != p->version)
		return -REASON_BAD_HEADER;
	if (quoted->protocol != IPPROTO_TCP && quoted->protocol != IPPROTO_UDP)
		return XDP_PASS;
	if (quoted->kind == KIND_FRAGMENT_LATER || !same_address(&quoted->source, &p->destination))
		return -REASON_ICMP_UNKNOWN;
	/* As if it were the client that speaks: the packet quoted went the other way. */
	p->destination_port = quoted->source_port;
	p->source_port = quoted->destination_port;
	p->source = quoted->destination;
	p->protocol = quoted->protocol;
	p->kind = KIND_ICMP_ERROR;
	p->tcp_flags = 0;
	struct frontend_key vip = {.vip = p->destination, .port = p->destination_port, .protocol = p->protocol};
	struct frontend *f = bpf_map_lookup_elem(&frontends, &vip);
	if (!f || !(f->flags & FRONTEND_BALANCED))
		return XDP_PASS;
	struct flow_key key;
	flow_key_of(&key, p, f);
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		flow = bpf_map_lookup_elem(&fresh, &key);
	__u32 at = 0;
	struct backend *b = 0;
	if (flow) {
		at = flow->backend;
		b = backend_at(at);
		if (b && (b->generation != flow->generation || !(b->flags & BACKEND_READY)))
			b = 0;
	}
	if (!b) {
		flow = 0;
		at = chosen(row_of(f, flow_hash(p, f->hash)), 0, &b);
	}
	if (!at || !b)
		return -REASON_ICMP_UNKNOWN;
	if (b->mode != MODE_NAT)
		return send(p, f, at, b, 0, 0, 0);
	return flow ? send_nat(p, f, at, b, flow) : -REASON_ICMP_UNKNOWN;
}
