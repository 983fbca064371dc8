/* Which flows are those of backends of this machine. The maps of flows that began here
 * decide; sockets are asked when they do not know. */
#pragma once

#include "../lib/clock.h"
#include "../lib/parse.h"
#include "maps.h"

/* What is asked about: a packet of a client, or an ICMP error about one to it. */
struct flow_view {
	struct flow_key key; /* with the client's port */
	struct address vip;
	__u16 vip_port;
	__u8 protocol;
	__u8 flags; /* of TCP; of errors and later fragments 0 */
	bool v6;
	bool error;
	bool known; /* the machine knows the frontend */
	__u8 zero[1];
	__u32 frontend_flags;
};

static __always_inline bool is_first(const struct flow_view *f)
{
	return f->protocol == IPPROTO_TCP && !f->error &&
	       (f->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

static __always_inline struct owned *find_owned(const struct flow_key *key)
{
	struct owned *o = bpf_map_lookup_elem(&owned, key);
	return o ? o : bpf_map_lookup_elem(&owned_fresh, key);
}

/* Notes that the flow is id's. First packets go to owned_fresh, so that a flood of them
 * evicts no flow that is known to be real. */
static __always_inline void own(const struct flow_view *f, __u64 id)
{
	bool first = is_first(f);
	__u8 state = first ? FLOW_NEW : f->flags & (TCP_FIN | TCP_RST) ? FLOW_CLOSING : FLOW_ESTABLISHED;
	__u32 now = seconds();
	struct owned *o = bpf_map_lookup_elem(&owned, &f->key);
	if (o) {
		if (o->id != id || (first && o->state == FLOW_CLOSING)) {
			o->id = id;
			o->state = state;
		} else if (state == FLOW_CLOSING && o->state != FLOW_CLOSING) {
			o->state = FLOW_CLOSING;
		}
		if (o->seen != now)
			o->seen = now;
		return;
	}
	o = bpf_map_lookup_elem(&owned_fresh, &f->key);
	struct owned fresh = {.id = id, .seen = now, .state = state};
	/* A datagram is a first packet when none was seen before. */
	if (first || (f->protocol == IPPROTO_UDP && !o)) {
		fresh.state = FLOW_NEW;
		bpf_map_update_elem(&owned_fresh, &f->key, &fresh, BPF_ANY);
		return;
	}
	/* The last packets of a short flow may be seen by two CPUs at once: its end stays. */
	bpf_map_update_elem(&owned, &f->key, &fresh, state == FLOW_CLOSING ? BPF_ANY : BPF_NOEXIST);
	if (o)
		bpf_map_delete_elem(&owned_fresh, &f->key);
}

/* Says whether an ACK completes a handshake whose SYN-ACK was a cookie (RFC 4987). at is
 * where its TCP header is. */
static __noinline bool is_cookie(struct __sk_buff *skb, struct bpf_sock *listener, struct flow_view *f, struct local *l,
				 __u32 at)
{
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} ip = {};
	union {
		struct tcphdr header;
		__u8 bytes[60];
	} tcp;
	if (bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp.header)))
		return false;
	__u32 size = tcp.header.doff * 4;
	if (size < sizeof(tcp.header) || size > sizeof(tcp) || bpf_skb_load_bytes(skb, at, &tcp, size))
		return false;
	tcp.header.dest = l->port; /* the kernel signed what it saw */
	__u32 length = sizeof(ip.v4);
	if (f->v6) {
		length = sizeof(ip.v6);
		ip.v6.version = 6;
		__builtin_memcpy(&ip.v6.saddr, &f->key.client, 16);
		__builtin_memcpy(&ip.v6.daddr, &l->address, 16);
	} else {
		ip.v4.version = 4;
		ip.v4.ihl = 5;
		ip.v4.saddr = f->key.client.words[3];
		ip.v4.daddr = l->address.words[3];
	}
	return bpf_tcp_check_syncookie(listener, &ip, length, &tcp.header, size) == 0;
}

/* A segment whose sequence number is further than this, in bytes, from the next one that the
 * connection expects belongs to another connection. So does an acknowledgement that is further
 * behind what the connection has sent. */
#define FAR (1u << 24)

/* An acknowledgement may be this far ahead. The kernel adds a segment to snd_nxt after it has
 * sent it (tcp_write_xmit). The client's acknowledgement may arrive before that. A segment has
 * 512 KiB at most (BIG TCP). */
#define AHEAD (1u << 20)

/* Is the segment the connection's, by its numbers? A client that was cut off gives its
 * connection up, which the server does not hear, and the next one with the same addresses may
 * begin at another machine. Server and client each choose where to begin to count (RFC 9293,
 * 3.4.1). */
static __always_inline bool fits(struct __sk_buff *skb, const struct flow_view *f, struct bpf_tcp_sock *c, __u32 at)
{
	struct {
		__be32 sent, heard;
	} numbers;
	if (bpf_skb_load_bytes(skb, at + offsetof(struct tcphdr, seq), &numbers, sizeof(numbers)))
		return false;
	if (bpf_ntohl(numbers.sent) - c->rcv_nxt + FAR > 2 * FAR)
		return false;
	return !(f->flags & TCP_ACK) || c->snd_nxt - bpf_ntohl(numbers.heard) + AHEAD <= FAR + AHEAD;
}

/* What sockets of this machine say of a flow. */
enum socket_has {
	HAS_NONE,  /* none; those of containers are not seen */
	HAS_OTHER, /* the backend's are seen, and the flow's is not among them */
	HAS_ENDED, /* TIME_WAIT: the client may use the port for another flow by now, elsewhere */
	HAS_FLOW,
};

/* Says whether a socket of this machine has the flow at a backend's address: connected,
 * half open, or to come out of a cookie; or listens for one that begins. transport is
 * where the TCP header is. */
static __noinline int has_socket(struct __sk_buff *skb, struct flow_view *f, struct local *l, __u32 transport)
{
	struct bpf_sock_tuple t = {};
	__u32 size = sizeof(t.ipv4);
	if (f->v6) {
		size = sizeof(t.ipv6);
		__builtin_memcpy(t.ipv6.saddr, &f->key.client, 16);
		__builtin_memcpy(t.ipv6.daddr, &l->address, 16);
		t.ipv6.sport = f->key.port;
		t.ipv6.dport = l->port;
	} else {
		t.ipv4.saddr = f->key.client.words[3];
		t.ipv4.daddr = l->address.words[3];
		t.ipv4.sport = f->key.port;
		t.ipv4.dport = l->port;
	}
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return HAS_NONE;
	int has = HAS_FLOW;
	if (is_first(f)) {
		/* A waiting socket lets a new flow begin. */
	} else if (sk->state == BPF_TCP_TIME_WAIT) {
		has = HAS_ENDED;
	} else if (sk->state == BPF_TCP_LISTEN) {
		bool completes = !f->error && (f->flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_ACK;
		/* One for all addresses may be no backend's. */
		if (!completes || !is_cookie(skb, sk, f, l, transport))
			has = l->flags & BACKEND_PROXY ? HAS_OTHER : HAS_NONE;
	} else if (!f->error) {
		struct bpf_tcp_sock *c = bpf_tcp_sock(sk); /* none while half open */
		if (c && !fits(skb, f, c, transport))
			has = HAS_OTHER;
	}
	bpf_sk_release(sk);
	return has;
}
