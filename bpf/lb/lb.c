/* The load balancer. balance is the XDP program; nearly all packets take its short way, the
 * others (tags, options, extension headers, fragments, ICMP, what is malformed) go through
 * balance_any, which reads them again from the start. */
#include "../lib/answer.h"
#include "../lib/clock.h"
#include "../lib/count.h"
#include "../lib/link.h"
#include "../lib/parse.h"
#include "admit.h"
#include "flow.h"
#include "fragment.h"
#include "icmp.h"
#include "maps.h"
#include "nat.h"
#include "quic.h"
#include "row.h"
#include "send.h"
#include "work.h"

/* The frontend of a packet, if it is to be balanced here. */
static __always_inline struct frontend *frontend_of(const struct packet *p)
{
	struct frontend_key key;
	key.vip = p->destination;
	*(__u64 *)&key.port = p->destination_port | (__u32)p->protocol << 16;
	struct frontend *f = bpf_map_lookup_elem(&frontends, &key);
	return f && (f->flags & FRONTEND_BALANCED) ? f : 0;
}

/* Is it for a VIP that is guarded? */
static __always_inline int is_guarded(const struct packet *p)
{
	struct address to = p->destination;
	__u32 *vip = bpf_map_lookup_elem(&vips, &to);
	return vip && (*vip & VIP_GUARDED);
}

static __always_inline __u32 udp_payload(const struct packet *p)
{
	return p->length - p->header - sizeof(struct udphdr);
}

/* What the short program leaves to the long one. */
#define FRONTEND_LONG (FRONTEND_SOURCES | FRONTEND_QUIC | FRONTEND_AFFINITY | FRONTEND_LIMITED)

/* The place of the backend that gets a packet whose entry is doubted. If it is not the entry's
 * own, whose place is own, work()->asked says who is asked: the row's first two that take new
 * flows, then the entry's own, then others. The entry stays as it is but for its end. */
static __noinline __u32 ask_others(struct packet *p, struct frontend *f, struct flow *flow, __u32 own)
{
	if ((p->tcp_flags & (TCP_FIN | TCP_RST)) && f->hash == HASH_FIVE_TUPLE) {
		struct flow_key key;
		flow_key_of(&key, p, f);
		tell_end(&key, flow, p->tcp_flags, 0);
		flow->state = FLOW_CLOSING;
	}
	struct work *w = work();
	if (!w)
		return own;
	w->asked.hash = flow_hash(p, f->hash);
	row r = row_of(f, w->asked.hash);
	struct backend *first = 0;
	__u32 at = first_with(r, BACKEND_NEW, &first);
	if (!at || !first || first->mode != MODE_GENEVE)
		return own; /* nobody would pass it on */
	w->asked.row = asking(r, own);
	return at;
}

/* A packet with ports for a frontend. brief, a constant, says that this is the short
 * program: it returns LONG_WAY before it changes anything. */
static __always_inline int deliver(struct packet *p, struct frontend *f, int brief)
{
	if (brief && unlikely(f->flags & FRONTEND_LONG))
		return LONG_WAY;
	struct flow_key key;
	flow_key_of(&key, p, f);
	if (!brief && (f->flags & FRONTEND_SOURCES) && !in_sources(&key.client, f->index))
		return -REASON_SOURCE_DENIED;
	__u32 now = seconds(), begins = 0;
	int at = 0;
	struct flow *flow = 0;
	struct backend *b = 0;
	struct way *asked = 0;
	if (!brief && (f->flags & FRONTEND_QUIC) && p->protocol == IPPROTO_UDP)
		at = quic_server(p->transport + sizeof(struct udphdr), udp_payload(p), p->end, f);
	if (!at) {
		flow = bpf_map_lookup_elem(&flows, &key);
		if (likely(flow)) {
			at = flow->backend;
			b = backend_at(at);
		}
		if (likely(b && follows(flow, &key, b, p, now))) {
			if (brief && unlikely(!is_short(b)))
				return nat_known(p, f, at, b, flow, &key, now);
			note(flow, &key, p, f, now);
		} else if (unlikely(b && doubtful(flow, b, p, now))) {
			if (brief)
				return LONG_WAY;
			int own = at;
			at = ask_others(p, f, flow, own);
			b = backend_at(at);
			struct work *w = work();
			if (w && at != own)
				asked = &w->asked;
		} else {
			at = begin(p, f, &key, flow, now, &begins, brief);
			if (at < 0)
				return at;
			b = backend_at(at);
		}
	} else {
		b = backend_at(at);
	}
	if (unlikely(!b))
		return -REASON_NO_BACKEND;
	if (brief)
		return send(p, f, at, b, 0, begins, 1);
	if (p->kind == KIND_FRAGMENT_FIRST)
		remember_fragment(p, f, at, b, asked, now);
	if (b->mode != MODE_NAT)
		return send(p, f, at, b, asked, begins, 0);
	if (begins) {
		count(&frontend_counters, f->index, 0, 1);
		count(&backend_counters, at, 0, 1);
	}
	flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		flow = bpf_map_lookup_elem(&fresh, &key);
	struct flow none = {.backend = at, .generation = b->generation};
	return send_nat(p, f, at, b, flow ? flow : &none);
}

/* The long program: every packet that the short one does not take. */
SEC("xdp.frags")
int balance_any(struct xdp_md *xdp)
{
	struct packet p = {};
	int result = read_packet(xdp, &p, 0);
	if (result == NOT_IP)
		return XDP_PASS;
	void *data = (void *)(long)xdp->data;
	if (data + sizeof(struct ethhdr) > (void *)(long)xdp->data_end || !for_us(data))
		return XDP_PASS;
	__u32 *vip = bpf_map_lookup_elem(&vips, &p.destination);
	__u32 guarded = vip ? *vip & VIP_GUARDED : 0;
	if (!result)
		result = point(&p, xdp);
	if (!vip) {
		/* Whatever is wrong with it, it is none of our business. */
		if (result)
			return XDP_PASS;
		result = nat_back(&p);
		return result < 0 ? drop(xdp, result) : result;
	}
	if (result)
		return drop(xdp, result);
	if (p.kind == KIND_OTHER)
		return XDP_PASS;
	if (martian(&p))
		return drop(xdp, REASON_MARTIAN);
	if (p.kind == KIND_ICMP) {
		result = deliver_icmp(&p);
	} else if (p.kind == KIND_FRAGMENT_LATER) {
		result = p.protocol == IPPROTO_TCP || p.protocol == IPPROTO_UDP ? follow_fragment(&p, seconds())
										: XDP_PASS;
	} else {
		struct frontend *f = frontend_of(&p);
		if (f) {
			result = deliver(&p, f, 0);
		} else if (guarded && (result = keep_out(&p)) < 0) {
			return drop(xdp, result);
		} else {
			if (p.kind == KIND_FRAGMENT_FIRST)
				remember_fragment(&p, 0, 0, 0, 0, seconds());
			result = XDP_PASS;
		}
	}
	return result < 0 ? refuse(xdp, result) : result;
}

/* The short program's way to the long one. A call would need more stack than there is. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, int(void *));
} programs SEC(".maps") = {.values = {[0] = (void *)&balance_any}};

/* The short program. Returns LONG_WAY, and nothing was changed, for packets of the long one. */
static __always_inline int balance_short(struct xdp_md *xdp)
{
	struct packet p;
	void *data = (void *)(long)xdp->data;
	p.xdp = xdp;
	p.end = (void *)(long)xdp->data_end;
	if (likely(parse_plain(&p, data))) {
		if (unlikely(!for_us(data)))
			return XDP_PASS;
		struct frontend *f = frontend_of(&p);
		int result;
		if (!f) {
			result = nat_back(&p);
			if (likely(result == XDP_PASS))
				return is_guarded(&p) ? LONG_WAY : XDP_PASS;
			return result < 0 ? drop(xdp, result) : result;
		}
		result = deliver(&p, f, 1);
		if (likely(result >= 0 || result == LONG_WAY))
			return result;
		return refuse(xdp, result);
	}
	return LONG_WAY;
}

SEC("xdp.frags")
int balance(struct xdp_md *xdp)
{
	int result = balance_short(xdp);
	if (likely(result != LONG_WAY))
		return result;
	bpf_tail_call(xdp, &programs, 0);
	return drop(xdp, REASON_INTERNAL);
}
