/* Answers of backends of this machine: they get back the VIP and the port that the client
 * knows. */
#pragma once

#include "../lib/clock.h"
#include "../lib/rewrite.h"
#include "flow.h"
#include "own.h"

/* How long after its last packet a client's port at one VIP is still in use, when the same
 * backend gets a first packet from it by another VIP. Seconds. */
#define AMBIGUITY 60

static __always_inline struct restore *find_restore(const struct restore_key *key, bool fresh)
{
	struct restore *r = bpf_map_lookup_elem(&restores, key);
	if (!r && fresh)
		r = bpf_map_lookup_elem(&restores_fresh, key);
	return r;
}

static __always_inline bool same_restore(const struct restore *r, const struct restore *s)
{
	return r->port == s->port && same_address(&r->vip, &s->vip);
}

/* Notes how answers of the flow at the backend are to be changed. Like own, first packets,
 * and those that are not known to be of the backend's flows, do not touch what is known to
 * be real. Returns 0 or a reason. */
static __always_inline int remember(const struct flow_view *f, const struct address *backend, __u16 port, __u16 mss,
				    bool keep)
{
	struct restore_key key = {.backend = *backend, .client = f->key.client, .backend_port = port};
	key.client_port = f->key.port;
	key.protocol = f->protocol;
	struct restore new = {.vip = f->vip, .port = f->vip_port, .mss = mss, .seen = seconds()};
	struct restore *r = bpf_map_lookup_elem(&restores, &key);
	if (r && same_restore(r, &new)) {
		if (r->seen != new.seen)
			r->seen = new.seen;
		if (mss)
			r->mss = mss;
		return 0;
	}
	/* To the backend both look the same: one of them must do without it. */
	if (r && (__s32)(new.seen - r->seen) < AMBIGUITY)
		return REASON_AMBIGUOUS;
	if (r) {
		bpf_map_update_elem(&restores, &key, &new, BPF_ANY);
		return 0;
	}
	r = bpf_map_lookup_elem(&restores_fresh, &key);
	if (is_first(f) || !keep || (f->protocol == IPPROTO_UDP && !r)) {
		bpf_map_update_elem(&restores_fresh, &key, &new, BPF_ANY);
		return 0;
	}
	if (r)
		new.mss = r->mss;
	bpf_map_update_elem(&restores, &key, &new, BPF_ANY);
	if (r)
		bpf_map_delete_elem(&restores_fresh, &key);
	return 0;
}

#define TCP_OPTIONS 20 /* looked at, at most; the MSS is the first of most */

/* Lowers the MSS option of a SYN or SYN-ACK to mss (RFC 9293, 3.7.1). */
static __noinline int clamp(struct __sk_buff *skb, struct datagram *d, __u32 mss)
{
	__u8 doff;
	if (bpf_skb_load_bytes(skb, d->transport + 12, &doff, 1))
		return 0;
	__u32 at = d->transport + sizeof(struct tcphdr);
	__u32 end = d->transport + (doff >> 4) * 4;
	for (int i = 0; i < TCP_OPTIONS && at + 4 <= end; i++) {
		struct {
			__u8 kind;
			__u8 length;
			__be16 value;
		} option;
		if (bpf_skb_load_bytes(skb, at, &option, 4) || option.kind == 0)
			return 0;
		if (option.kind == 1) {
			at++;
			continue;
		}
		if (option.kind != 2) {
			if (option.length < 2)
				return 0;
			at += option.length;
			continue;
		}
		if (option.length != 4 || bpf_ntohs(option.value) <= mss)
			return 0;
		__be16 old = option.value;
		__be16 new = bpf_htons(mss);
		if (bpf_skb_store_bytes(skb, at + 2, &new, 2, 0))
			return -1;
		/* At an odd place the bytes are of two words, each the other's half. */
		if ((at - d->transport) & 1)
			old = __builtin_bswap16(old), new = __builtin_bswap16(new);
		return bpf_l4_csum_replace(skb, d->transport + 16, old, new, 2);
	}
	return 0;
}

/* A backend closes: first packets of the same client and port need not go where it was. */
static __always_inline void closing(const struct restore_key *key, const struct restore *r)
{
	struct frontend_key k = {.vip = r->vip, .port = r->port, .protocol = key->protocol};
	struct frontend *f = bpf_map_lookup_elem(&frontends, &k);
	if (!f)
		return;
	struct flow_key flow = {.client = key->client, .frontend = f->index, .port = key->client_port};
	struct owned *o = find_owned(&flow);
	if (o && o->state != FLOW_CLOSING)
		o->state = FLOW_CLOSING;
}

static __always_inline struct restore_key restore_key_of(const struct address *backend, __u16 backend_port,
							 const struct address *client, __u16 client_port, __u8 protocol)
{
	struct restore_key key = {.backend = *backend, .client = *client, .backend_port = backend_port};
	key.client_port = client_port;
	key.protocol = protocol;
	return key;
}

static __always_inline struct fragment_key datagram_key_of(const struct datagram *d)
{
	struct fragment_key key = {.source = d->source, .destination = d->destination, .id = d->id};
	key.protocol = d->v6 ? 0 : d->protocol; /* over IPv6 fragments may disagree (RFC 8200, 4.5) */
	return key;
}

/* Identifications come again; see follow_fragment. */
static __always_inline bool recent_fragment(__u32 seen)
{
	return (__s32)(seconds() - seen) <= 60;
}

/* A TCP or UDP packet with its ports. Returns 0 or a reason. */
static __always_inline int restore_answer(struct __sk_buff *skb, struct datagram *d)
{
	struct restore_key key = restore_key_of(&d->source, d->from, &d->destination, d->to, d->protocol);
	bool fresh = d->protocol == IPPROTO_UDP || (d->flags & (TCP_SYN | TCP_RST));
	struct restore *r = find_restore(&key, fresh);
	if (!r)
		return 0;
	/* Nobody says when a flow of UDP ends: the client may be one of the backend itself by now. */
	if (d->protocol == IPPROTO_UDP && (__s32)(seconds() - r->seen) > (__s32)udp_idle)
		return 0;
	if (d->part == PART_FIRST) {
		struct fragment_key f = datagram_key_of(d);
		struct tunnel_fragment t = {.vip = r->vip, .from = r->port, .seen = seconds()};
		bpf_map_update_elem(&tunnel_fragments, &f, &t, BPF_ANY);
	}
	struct address vip = r->vip;
	__u16 port = r->port;
	__u16 mss = r->mss;
	if (d->protocol == IPPROTO_TCP) {
		if (d->flags & (TCP_FIN | TCP_RST))
			closing(&key, r);
		if ((d->flags & TCP_SYN) && mss && clamp(skb, d, mss))
			return REASON_INTERNAL;
	}
	if (port == d->from && same_address(&vip, &d->source)) /* a proxy's */
		return 0;
	return readdress(skb, d, SOURCE, &vip, port) ? REASON_INTERNAL : 0;
}

/* Is it the first packet of a connection? Those with options or extension headers are not
 * looked at. */
static __always_inline bool opens_directly(struct __sk_buff *skb)
{
	__u8 flags, protocol;
	__u32 at = LINK_HEADER + sizeof(struct iphdr);
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, LINK_HEADER + 9, &protocol, 1))
			return false;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		at = LINK_HEADER + sizeof(struct ipv6hdr);
		if (bpf_skb_load_bytes(skb, LINK_HEADER + 6, &protocol, 1))
			return false;
	} else {
		return false;
	}
	return protocol == IPPROTO_TCP && !bpf_skb_load_bytes(skb, at + 13, &flags, 1) &&
	       (flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* A client connects to a backend itself, from a port from which it had a flow by a VIP. Once
 * that has ended, answers are not the VIP's any more. */
static __always_inline void forget_restore(struct __sk_buff *skb, struct datagram *d)
{
	if (!opens_directly(skb) || read_datagram(skb, LINK_HEADER, skb->protocol == bpf_htons(ETH_P_IPV6), false, d) ||
	    d->protocol != IPPROTO_TCP)
		return;
	struct restore_key key = restore_key_of(&d->destination, d->to, &d->source, d->from, IPPROTO_TCP);
	struct restore *r = find_restore(&key, true);
	if (!r || (r->port == d->to && same_address(&r->vip, &d->destination))) /* a proxy's */
		return;
	struct frontend_key k = {.vip = r->vip, .port = r->port, .protocol = IPPROTO_TCP};
	struct frontend *f = bpf_map_lookup_elem(&frontends, &k);
	if (f && (__s32)(seconds() - r->seen) < AMBIGUITY) {
		struct flow_key flow = {.client = key.client, .frontend = f->index, .port = key.client_port};
		struct owned *o = find_owned(&flow);
		if (o && o->state != FLOW_CLOSING)
			return;
	}
	bpf_map_delete_elem(&restores, &key);
	bpf_map_delete_elem(&restores_fresh, &key);
}

/* The machine or the backend says that a packet did not arrive. */
static __always_inline int restore_error(struct __sk_buff *skb, struct datagram *d, struct datagram *q)
{
	if (read_quoted(skb, d, q) || !is_ports(q->protocol) || q->part == PART_LATER)
		return 0;
	struct restore_key key = restore_key_of(&q->destination, q->to, &q->source, q->from, q->protocol);
	struct restore *r = find_restore(&key, true);
	if (!r)
		return 0;
	struct address vip = r->vip;
	if (requote(skb, d, q, DESTINATION, &vip, r->port))
		return REASON_INTERNAL;
	/* Routers behind us speak for themselves. */
	if (same_address(&d->source, &q->destination) && readdress(skb, d, SOURCE, &vip, 0))
		return REASON_INTERNAL;
	return 0;
}

static __always_inline int restore_fragment(struct __sk_buff *skb, struct datagram *d)
{
	struct fragment_key key = datagram_key_of(d);
	struct tunnel_fragment *t = bpf_map_lookup_elem(&tunnel_fragments, &key);
	if (!t || !recent_fragment(t->seen))
		return 0;
	struct address vip = t->vip;
	return readdress(skb, d, SOURCE, &vip, 0) ? REASON_INTERNAL : 0;
}
