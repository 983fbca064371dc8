/* The machine of a backend: packets of clients come out of tunnels, answers get back the
 * VIP. tunnel_in, which is in demux.c, hands the load balancer's tunnels over. */
#include "../lib/skb.h"
#include "hop.h"
#include "own.h"
#include "restore.h"

/* What does not fit the stack. */
struct tunnel_work {
	struct tunnel tunnel;
	struct datagram packet;
	struct datagram quoted;
	struct flow_view flow;
};

SCRATCH(tunnel_works, struct tunnel_work);

static __always_inline struct tunnel_work *tunnel_work(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&tunnel_works, &zero);
}

static __always_inline struct local *find_local(struct tunnel_work *w, __u64 id)
{
	struct local_key key = {.id = id, .frontend = w->flow.key.frontend};
	return w->flow.known ? bpf_map_lookup_elem(&locals, &key) : NULL;
}

/* Where the backend with the id is, if it is at another machine. */
static __always_inline struct hop *find_hop(__u64 id)
{
	struct settings *s = setting();
	struct hop *h = bpf_map_lookup_elem(&hops, &id);
	if (!s || !h || same_address(&h->remote, &s->tunnel4) || same_address(&h->remote, &s->tunnel6))
		return NULL;
	return h;
}

/* Reads what is in the tunnel and whose flow it is. Returns 0 or a reason. */
static __always_inline int read_inside(struct __sk_buff *skb, struct tunnel_work *w)
{
	struct tunnel *t = &w->tunnel;
	struct datagram *d = &w->packet;
	__u32 at = LINK_HEADER + t->length;
	int r = read_datagram(skb, at, t->inner == 6, false, d);
	if (r)
		return r;
	__u32 payload = LINK_HEADER + t->outer.length + t->outer.payload;
	if (d->end > payload)
		return REASON_TRUNCATED;

	struct flow_view *f = &w->flow;
	__builtin_memset(f, 0, sizeof(*f));
	f->v6 = d->v6;
	f->protocol = d->protocol;
	f->key.client = d->source;
	f->key.port = d->from;
	f->vip = d->destination;
	f->vip_port = d->to;
	f->flags = d->flags;
	if (t->flags & HOP_ECHO)
		return 0;
	if (is_error(d)) {
		struct datagram *q = &w->quoted;
		if (read_quoted(skb, d, q) || !is_ports(q->protocol) || q->part == PART_LATER ||
		    !same_address(&q->source, &d->destination))
			return REASON_ICMP_UNKNOWN;
		f->error = true;
		f->protocol = q->protocol;
		f->key.client = q->destination;
		f->key.port = q->to;
		f->vip = q->source;
		f->vip_port = q->from;
	} else if (!is_ports(d->protocol)) {
		return REASON_UNSUPPORTED_PROTOCOL;
	} else if (d->part != PART_WHOLE) {
		struct fragment_key key = datagram_key_of(d);
		if (d->part == PART_FIRST) {
			struct tunnel_fragment first = {.vip = f->vip, .from = d->from, .to = d->to, .seen = seconds()};
			bpf_map_update_elem(&tunnel_fragments, &key, &first, BPF_ANY);
		} else {
			struct tunnel_fragment *first = bpf_map_lookup_elem(&tunnel_fragments, &key);
			if (!first || !recent_fragment(first->seen))
				return REASON_FRAGMENT;
			f->key.port = first->from;
			f->vip_port = first->to;
		}
	}
	struct frontend_key key = {.vip = f->vip, .port = f->vip_port, .protocol = f->protocol};
	struct frontend *known = bpf_map_lookup_elem(&frontends, &key);
	if (known) {
		f->known = true;
		f->key.frontend = known->index;
		f->frontend_flags = known->flags;
	}
	return 0;
}

/* The largest segment that the client may send through a tunnel like this one, whose option
 * has room for all ids: another load balancer may know less about the flow. */
static __always_inline __u16 fitting(struct __sk_buff *skb, struct tunnel_work *w)
{
	struct next_hop *nh = bpf_map_lookup_elem(&next_hops, &w->tunnel.next_hop);
	__u32 mtu = nh ? nh->mtu : 0;
	if (!mtu)
		bpf_check_mtu(skb, 0, &mtu, 0, 0);
	__u32 headers = w->tunnel.length + (HOPS - w->tunnel.room) * sizeof(__u64) +
			(w->flow.v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) + sizeof(struct tcphdr);
	if (mtu > 65535)
		mtu = 65535;
	return mtu > headers ? mtu - headers : 0;
}

/* Hands the packet to a backend of this machine. keep: the flow is its own from now on. */
static __always_inline int receive(struct __sk_buff *skb, struct tunnel_work *w, __u64 id, bool keep)
{
	struct flow_view *f = &w->flow;
	struct local *l = find_local(w, id);
	if (!l)
		return skb_drop(skb, REASON_NOT_HERE);
	struct address to = l->address;
	__u16 port = l->port;
	bool proxy = l->flags & BACKEND_PROXY;
	int r = 0;
	if (!f->error) {
		bool first = is_first(f);
		/* Of proxies only the size of segments is to be changed. */
		if (proxy && first)
			r = remember(f, &f->vip, f->vip_port, fitting(skb, w), keep);
		else if (!proxy)
			r = remember(f, &to, port, first ? fitting(skb, w) : 0, keep);
		if (r)
			return skb_drop(skb, r);
		if (keep)
			own(f, id);
	}
	if (!proxy) {
		if (f->error && requote(skb, &w->packet, &w->quoted, SOURCE, &to, port))
			return skb_drop(skb, REASON_INTERNAL);
		if (readdress(skb, &w->packet, DESTINATION, &to, port))
			return skb_drop(skb, REASON_INTERNAL);
	}
	r = remove_tunnel(skb, &w->tunnel);
	return r ? skb_drop(skb, r) : TCX_ACTION_NEXT;
}

/* Sends the packet, still in its tunnel, to another machine. */
static __always_inline int pass_on(struct __sk_buff *skb, struct tunnel_work *w, struct hop *h)
{
	struct tunnel *t = &w->tunnel;
	struct settings *s = setting();
	if (!s)
		return skb_drop(skb, REASON_INTERNAL);
	if (t->outer.ttl <= 1)
		return skb_drop(skb, REASON_HOP_LIMIT);
	struct next_hop *nh = bpf_map_lookup_elem(&next_hops, &h->next_hop);
	struct address to = h->remote;
	struct address from = is4(&to) ? s->tunnel4 : s->tunnel6;
	__u32 mtu = nh && nh->device ? nh->mtu : 0;
	if (mtu && t->outer.payload + (is4(&to) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) > mtu)
		return skb_drop(skb, REASON_TOO_BIG);
	int r = redirect_tunnel(skb, t, &from, &to);
	return r ? skb_drop(skb, r) : skb_forward(skb, nh, &from, &to);
}

/* Says whether the backend of this machine that is asked takes a flow nobody is known to
 * own: HAS_ENDED means that it does if nobody else has it. */
static __always_inline int accepts(struct __sk_buff *skb, struct tunnel_work *w, struct local *l)
{
	struct flow_view *f = &w->flow;
	if (is_first(f)) {
		if (!(l->flags & (BACKEND_READY | BACKEND_NEW)) || f->frontend_flags & FRONTEND_UNREADY)
			return HAS_NONE;
		/* A proxy that died, and its agent with it, is missed here first. */
		return l->flags & BACKEND_PROXY ? has_socket(skb, f, l, w->packet.transport) : HAS_FLOW;
	}
	if (f->protocol == IPPROTO_UDP)
		return w->tunnel.count == 1 ? HAS_FLOW : HAS_NONE;
	return w->packet.part != PART_LATER ? has_socket(skb, f, l, w->packet.transport) : HAS_NONE;
}

/* Says whether a flow that was this machine's still is. Where the server ends a connection,
 * or either side was cut off, the client may use its port again, and the next flow with the
 * same addresses may have begun at another machine. */
static __always_inline bool lasts(struct __sk_buff *skb, struct tunnel_work *w, struct owned *o, struct local *l)
{
	bool closing = o->state == FLOW_CLOSING;
	if (w->flow.protocol != IPPROTO_TCP || w->packet.part == PART_LATER ||
	    (!closing && (__s32)(seconds() - o->seen) < SILENT))
		return true;
	int has = has_socket(skb, &w->flow, l, w->packet.transport);
	return has == HAS_FLOW || (has == HAS_NONE && !closing && !(l->flags & BACKEND_PROXY));
}

/* Whose turn it is. */
static __always_inline __u64 on_turn(const struct tunnel *t)
{
	if (t->at == 1)
		return t->ids[1];
	return t->at == 2 ? t->ids[2] : t->ids[0];
}

/* Does a socket of the backend whose turn it is have the flow? Then it is here, whatever was
 * noted of one with the same addresses: a machine that has a VIP alone runs no programs, and
 * notes nothing of what begins. */
static __always_inline bool is_here(struct __sk_buff *skb, struct tunnel_work *w)
{
	if (w->flow.protocol != IPPROTO_TCP)
		return false;
	struct local *l = find_local(w, on_turn(&w->tunnel));
	return l && accepts(skb, w, l) == HAS_FLOW;
}

/* The flow is at another machine: this one was asked when it began and passed it on. That
 * machine is asked next. Where it is asked anyway this is not needed: what was passed on may
 * have been another flow with the same addresses. Being told so is believed twice, so that it
 * ends. Returns NULL if it is not so. */
static __always_inline struct hop *moved(struct tunnel_work *w, __u64 id)
{
	struct tunnel *t = &w->tunnel;
	if (t->flags & HOP_AGAIN)
		return NULL;
	bool final = t->flags & HOP_FINAL;
	__u64 rest[HOPS] = {id};
	__u8 count = 1;
	for (int i = 1; i < HOPS; i++) {
		if (final || i <= t->at || i >= t->count)
			continue;
		if (t->ids[i] == id)
			return NULL;
		rest[count == 1 ? 1 : 2] = t->ids[i];
		count++;
	}
	/* Who was to take it in the end may know more than that nobody else has it. */
	if (!final && t->at && count < HOPS && t->ids[0] != id) {
		rest[count == 1 ? 1 : 2] = t->ids[0];
		count++;
	}
	struct hop *h = find_hop(id);
	if (!h)
		return NULL;
	t->flags |= t->flags & HOP_MOVED ? HOP_AGAIN : HOP_MOVED;
	t->flags &= ~HOP_SEARCH;
	t->at = 0;
	t->count = count;
	for (int i = 0; i < HOPS; i++)
		t->ids[i] = rest[i];
	return h;
}

/* Rows have room for three. When more machines than two come at once, or one after the other
 * while a flow lasts, whoever has it may not be among them: then all other proxies are asked,
 * one after the other. Returns who is next; NULL when all were asked. */
static __always_inline struct hop *search(struct tunnel_work *w)
{
	struct tunnel *t = &w->tunnel;
	bool searching = t->flags & HOP_SEARCH;
	__u64 own = on_turn(t);
	if (t->room < HOPS || t->searched >= CIRCLE ||
	    (searching && t->at != 1)) /* an older program does not know how to */
		return NULL;
	__u64 start = searching ? t->ids[2] : own;
	struct local_key key = {.id = own, .frontend = w->flow.key.frontend};
	for (int i = 0; i < HOPS + 1; i++) {
		__u64 *next = bpf_map_lookup_elem(&circle, &key);
		if (!next || *next == start)
			return NULL;
		key.id = *next;
		bool was_asked = key.id == t->ids[0] || (!searching && ((t->count > 1 && key.id == t->ids[1]) ||
									(t->count > 2 && key.id == t->ids[2])));
		struct hop *h = was_asked ? NULL : find_hop(key.id);
		if (!h)
			continue;
		t->ids[1] = key.id;
		t->ids[2] = start;
		t->at = 1;
		t->count = HOPS;
		t->flags |= HOP_SEARCH;
		t->searched++;
		return h;
	}
	return NULL;
}

/* Second chance: whoever is asked and does not have the flow passes it on to the next; who
 * was asked first, or had it until it ended, takes it in the end. */
static __always_inline int choose(struct __sk_buff *skb, struct tunnel_work *w)
{
	struct tunnel *t = &w->tunnel;
	struct flow_view *f = &w->flow;
	bool first = is_first(f);
	struct owned *o = f->known ? find_owned(&f->key) : NULL;
	/* Whose the flow was, and is if nobody else says so: sockets of containers are not seen. */
	__u64 late = 0;
	if (o) {
		__u64 id = o->id;
		struct local *l = find_local(w, id);
		/* A first packet may be repeated; it is also how a port is used again. */
		__u8 both = BACKEND_READY | BACKEND_NEW;
		if (l && (first ? o->state != FLOW_CLOSING && (l->flags & both) == both : lasts(skb, w, o, l)))
			return receive(skb, w, id, true);
		if (l && !first)
			late = id;
		struct hop *h = l || first || is_here(skb, w) ? NULL : moved(w, id);
		if (h)
			return pass_on(skb, w, h);
	}
	if (t->flags & HOP_FINAL) {
		if (f->error && f->protocol == IPPROTO_TCP)
			return skb_drop(skb, REASON_ICMP_UNKNOWN);
		return receive(skb, w, t->ids[0], first || f->protocol == IPPROTO_UDP);
	}
	for (int i = 0; i < HOPS; i++) {
		if (i < t->at || i >= t->count || (i != t->at && (t->flags & HOP_SEARCH)))
			continue;
		__u64 id = t->ids[i];
		struct local *l = find_local(w, id);
		if (l) {
			int has = accepts(skb, w, l);
			if (has == HAS_FLOW)
				return receive(skb, w, id, true);
			if (has == HAS_ENDED && !late)
				late = id;
			continue;
		}
		/* Asked for one that is not here: whoever asks will learn it. */
		struct hop *h = i == t->at ? NULL : find_hop(id);
		if (!h)
			continue;
		if (first && f->known)
			own(f, id);
		t->at = i;
		if (late)
			t->ids[0] = late; /* it is asked in the end; who stands there has been */
		return pass_on(skb, w, h);
	}
	if (!first && f->known && f->protocol == IPPROTO_TCP) {
		struct hop *next = search(w);
		if (next) {
			if (late)
				t->ids[0] = late;
			return pass_on(skb, w, next);
		}
	}
	t->flags |= HOP_FINAL;
	t->at = 0;
	if (late)
		t->ids[0] = late;
	struct hop *h = find_local(w, t->ids[0]) ? NULL : find_hop(t->ids[0]);
	if (h)
		return pass_on(skb, w, h);
	if (f->error && f->protocol == IPPROTO_TCP)
		return skb_drop(skb, REASON_ICMP_UNKNOWN);
	return receive(skb, w, t->ids[0], first || f->protocol == IPPROTO_UDP);
}

/* Answers a probe: whether what leaves this machine from the VIP reaches who asks. */
static __always_inline int echo(struct __sk_buff *skb, struct tunnel_work *w)
{
	struct datagram *d = &w->packet;
	__u8 asks = d->v6 ? ICMPV6_ECHO_REQUEST : ICMP_ECHO;
	__be16 answer = d->v6 ? bpf_htons(ICMPV6_ECHO_REPLY << 8) : bpf_htons(ICMP_ECHOREPLY << 8);
	if (d->part != PART_WHOLE || d->protocol != (d->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP) || d->type != asks)
		return skb_drop(skb, REASON_BAD_TUNNEL);
	__be16 question = bpf_htons(asks << 8);
	__u32 at = d->transport;
	/* Swapped addresses sum to the same. */
	if (bpf_l4_csum_replace(skb, at + 2, question, answer, 2) || bpf_skb_store_bytes(skb, at, &answer, 1, 0) ||
	    store_address(skb, d, SOURCE, &d->destination) || store_address(skb, d, DESTINATION, &d->source))
		return skb_drop(skb, REASON_INTERNAL);
	int r = remove_tunnel(skb, &w->tunnel);
	return r ? skb_drop(skb, r) : skb_route(skb, &d->destination, &d->source);
}

/* A packet of one of the load balancer's tunnels. What has not its option is somebody else's, and
 * passes as it is. */
static __always_inline int lb_tunnel(struct __sk_buff *skb, const struct outer *o, const struct tunnel_header *h,
				     bool here)
{
	struct tunnel_work *w = tunnel_work();
	if (!w || !has_hops(h))
		return TCX_ACTION_NEXT;
	int r = read_hops(skb, o, h, here, &w->tunnel);
	if (!r)
		r = read_inside(skb, w);
	if (r)
		return skb_drop(skb, r);
	if (w->tunnel.flags & HOP_ECHO)
		return echo(skb, w);
	return choose(skb, w);
}

/* A packet that comes out of no tunnel. It passes as it is. */
static __always_inline void lb_direct(struct __sk_buff *skb)
{
	struct tunnel_work *w = tunnel_work();
	if (w)
		forget_restore(skb, &w->packet);
}

SEC("tcx/egress")
int tunnel_out(struct __sk_buff *skb)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	if (!v6 && skb->protocol != bpf_htons(ETH_P_IP))
		return TCX_ACTION_NEXT;
	struct tunnel_work *w = tunnel_work();
	if (!w)
		return TCX_ACTION_NEXT;
	struct datagram *d = &w->packet;
	/* What cannot be read is no answer: it is not ours to judge. */
	if (read_datagram(skb, LINK_HEADER, v6, false, d))
		return TCX_ACTION_NEXT;
	int r = 0;
	if (d->part == PART_LATER)
		r = restore_fragment(skb, d);
	else if (is_ports(d->protocol))
		r = restore_answer(skb, d);
	else if (is_error(d))
		r = restore_error(skb, d, &w->quoted);
	return r ? skb_drop(skb, r) : TCX_ACTION_NEXT;
}
