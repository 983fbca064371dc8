/* What the load balancer's programs share with the agent. See lib/layout.h for byte order. */
#pragma once

#include "../lib/layout.h"

/* frontends: hash */
struct frontend_key {
	struct address vip;
	__u16 port;
	__u8 protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	__u8 zero[5];
};

/* vips: hash: address -> number of its frontends that are balanced here, and VIP_GUARDED.
 * What is sent to another address is none of our business. */
#define VIP_GUARDED (1u << 31) /* what is sent to it, and to none of its frontends, is dropped */

/* others: hash: frontend_key of what something else serves at a VIP that is guarded: the
 * proxy alone, or another data plane. The value says nothing. */

enum frontend_flag {
	FRONTEND_BALANCED = 1 << 0, /* the VIP is here; else the machine only has backends of it */
	FRONTEND_SOURCES = 1 << 1,  /* clients must be in sources */
	FRONTEND_SETTLING = 1 << 2, /* rows changed within the drain time: UDP packets carry hops too */
	FRONTEND_AFFINITY = 1 << 3,
	FRONTEND_QUIC = 1 << 4,
	FRONTEND_UNREADY = 1 << 5, /* what is to take its flows at this machine does not serve */
	FRONTEND_LIMITED = 1 << 6,
};

enum flow_hash { HASH_FIVE_TUPLE, HASH_THREE_TUPLE, HASH_SOURCE };

struct frontend {
	__u32 index;    /* of its counters; in flow keys; stable while the frontend exists */
	__u32 rows;     /* its first row in rows */
	__u32 mask;     /* number of its rows - 1; the number is a power of two */
	__u32 affinity; /* seconds */
	__u32 limit;    /* new flows a second */
	__u16 flags;    /* enum frontend_flag */
	__u8 hash;      /* enum flow_hash */
	__u8 quic;      /* offset of the server id in the connection id << 4 | its length */
};

/* rows: array, mapped into the agent. Three backends of 21 bits each, the first in the
 * lowest bits; 0 is none. Written whole. */
#define ROW_BITS 21
#define ROW_MASK ((1u << ROW_BITS) - 1)
typedef __u64 row;

enum mode { MODE_NONE, MODE_LOCAL, MODE_NAT, MODE_GENEVE, MODE_IPIP, MODE_L2 };

/* backends: array; 0 is never used. A backend of a lookup table: the same server of two
 * tables is two. */
struct backend {
	__u64 id;               /* the same on every machine; travels in tunnels as hop */
	struct address address; /* where it answers; of a proxy the VIP */
	struct address remote;  /* where the outer header leads: tunnel endpoint or, for ipip, the backend */
	__u32 next_hop;         /* in next_hops */
	__u16 port;
	__u8 mode;       /* enum mode */
	__u8 generation; /* raised when the place gets another backend; flows remember it */
	__u8 flags;      /* enum backend_flag */
	__u8 pad[7];
	__u64 table; /* its first row + 1, for the agent that adopts the maps */
};
_Static_assert(sizeof(struct backend) == 64, "one cache line");

enum backend_flag {
	BACKEND_HERE = 1 << 0,  /* on this machine */
	BACKEND_READY = 1 << 1, /* may get packets of flows that it has */
	BACKEND_NEW = 1 << 2,   /* may get new flows */
	BACKEND_PROXY = 1 << 3, /* answers at the VIP itself: nothing to rewrite */
};

/* flows and fresh: LRU hash. fresh holds flows of which one packet was seen, so that a
 * flood of first packets evicts nothing of flows. */
struct flow_key {
	struct address client;
	__u32 frontend; /* frontend.index */
	__u16 port;     /* the client's; 0 where the frontend's hash leaves it out */
	__u16 zero;
};

enum flow_state { FLOW_NEW, FLOW_ESTABLISHED, FLOW_CLOSING };

struct flow {
	__u32 backend; /* in backends */
	__u32 seen;    /* seconds since boot */
	__u16 nat_port;
	__u8 generation;
	__u8 state; /* enum flow_state */
	__u32 zero;
};

/* watched: array, by frontend.index, mapped into the agent: whether somebody looks at the flows of
 * a frontend. The agent renews it; the programs stop by themselves if it does not. */
struct watch {
	__u32 until; /* seconds since boot; 0: nobody looks */
	__s32 left;  /* events that may still be told */
	__u64 lost;  /* events that were not told */
};

enum flow_event_kind { FLOW_EVENT_BEGIN, FLOW_EVENT_MOVE, FLOW_EVENT_END };

enum flow_reason {
	FLOW_REASON_NONE,
	FLOW_REASON_MIDFLOW, /* begin: it began at another load balancer, or its entry is gone */
	FLOW_REASON_AGAIN,   /* begin: the client uses a port again */
	FLOW_REASON_IDLE,    /* begin: the one before, of UDP, was silent for too long */
	FLOW_REASON_GONE,    /* move: its backend is no backend any more */
	FLOW_REASON_UNREADY, /* move: its backend may get nothing, or no new flow */
	FLOW_REASON_END,     /* end: the client's FIN */
	FLOW_REASON_RESET,   /* end: the client's RST */
	FLOW_REASON_BACKEND_END,
	FLOW_REASON_BACKEND_RESET,
};

/* flow_events: ring buffer of these */
struct flow_event {
	__u64 at; /* nanoseconds since boot */
	struct flow_key flow;
	__u32 backend; /* in backends */
	__u32 from;    /* before: in backends; 0: none */
	__u8 kind;     /* enum flow_event_kind */
	__u8 reason;   /* enum flow_reason */
	__u8 from_generation;
	__u8 zero;
	__u32 padding;
};

/* affinities: LRU hash: frontend and client address -> backend */
struct affinity_key {
	struct address client;
	__u32 frontend; /* frontend.index */
	__u32 zero;
};

struct affinity {
	__u32 backend; /* in backends */
	__u32 seen;    /* seconds since boot */
	__u8 generation;
	__u8 zero[7];
};

/* limits: array, by frontend.index: when the bucket of new flows will be full again,
 * nanoseconds since boot. One bucket for all CPUs, so that the limit is the machine's. */

/* quic_servers: hash: what a server wrote into its connection IDs (RFC 9000, 5.1) ->
 * __u32, in backends. */
struct quic_server_key {
	__u32 frontend; /* frontend.index */
	__u8 id[8];     /* the rest is zero */
	__u32 zero;
};

/* fragments: LRU hash: datagrams of which the first fragment was seen */
struct fragment_key {
	struct address source;
	struct address destination;
	__u32 id; /* as it is on the wire */
	__u8 protocol;
	__u8 zero[3];
};

struct fragment {
	__u32 backend;  /* in backends; 0: no frontend's, left to the kernel */
	__u32 frontend; /* frontend.index */
	__u64 row;      /* for hops; 0: none but backend */
	__u32 seen;
	__u8 generation;
	__u8 zero[3];
};

/* sources: LPM trie. The prefix counts the frontend's 32 bits. */
struct source_key {
	__u32 prefix;
	__u32 frontend; /* network byte order does not matter: it is matched whole */
	struct address client;
};

/* nat: LRU hash: packets of backends on their way back. nat_closed holds flows of TCP that
 * have ended: what still comes of them is led back, and their ports may go to others. */
struct nat_key {
	struct address backend;
	struct address source; /* ours */
	__u16 backend_port;
	__u16 source_port;
	__u8 protocol;
	__u8 zero[3];
};

enum nat_state {
	NAT_OPEN = 1 << 0,          /* the client went on after the backend had answered */
	NAT_CLIENT_ENDED = 1 << 1,  /* FIN */
	NAT_BACKEND_ENDED = 1 << 2, /* FIN */
	NAT_CLIENT_RESET = 1 << 3,  /* RST */
	NAT_BACKEND_RESET = 1 << 4,
	NAT_BACKEND_SPOKE = 1 << 5,
};

struct nat {
	struct address client;
	__u32 frontend; /* frontend.index */
	__u16 client_port;
	__u16 vip_port;
	struct address vip;
	__u32 seen;  /* seconds since boot */
	__u32 state; /* enum nat_state */
};

/* nat_fragments: LRU hash, by fragment_key: answers of which the first fragment was seen ->
 * nat_key */

/* locals: hash: backends on this machine, for what comes out of tunnels */
struct local_key {
	__u64 id;
	__u32 frontend; /* frontend.index */
	__u32 zero;
};

struct local {
	struct address address;
	__u16 port;
	__u8 flags; /* enum backend_flag */
	__u8 zero[5];
};

/* circle: hash, by local_key: a proxy of the frontend -> __u64, the next one. Each stands in
 * it once, if they are more than a row has room for. */

/* owned and owned_fresh: LRU hash, by flow_key with the client's port always: flows that
 * began at a backend of this machine, or were passed on by it: then the id is not in
 * locals. owned_fresh holds those of which one packet was seen. */
struct owned {
	__u64 id; /* of the backend */
	__u32 seen;
	__u8 state; /* enum flow_state */
	__u8 zero[3];
};

/* restores and restores_fresh: LRU hash: answers of backends on this machine, from which VIP
 * and port they are. restores_fresh holds those of flows of which one packet was seen. */
struct restore_key {
	struct address backend;
	struct address client;
	__u16 backend_port;
	__u16 client_port;
	__u8 protocol;
	__u8 zero[3];
};

struct restore {
	struct address vip;
	__u16 port;
	__u16 mss; /* largest segment that fits the tunnel; 0: leave it */
	__u32 seen;
};

/* tunnel_fragments: LRU hash, by fragment_key: datagrams of which the first fragment came
 * out of a tunnel (the ports are the client's and the VIP's) or left a backend (VIP and
 * port that it was given). */
struct tunnel_fragment {
	struct address vip;
	__u16 from; /* ports */
	__u16 to;
	__u32 seen;
};

/* hops: hash: id -> where the backend with that id is, for packets that are passed on. */
struct hop {
	struct address remote; /* tunnel endpoint */
	__u32 next_hop;
	__u8 flags; /* enum backend_flag */
	__u8 zero[3];
};

/* The Geneve option (RFC 8926, 3.5): whose turn it is. After the base header without
 * inner link header: the protocol type is IPv4 or IPv6. It has room for one id or for
 * HOPS; count says how many there are. */
#define LB_VNI 0         /* of the load balancer's tunnels */
#define HOP_CLASS 0xff0f /* experimental range */
#define HOP_TYPE 0x81    /* critical: who does not know it drops the packet */
#define HOPS 3
#define CIRCLE 16 /* most that are asked round the circle */

struct hop_option {
	__u16 option_class; /* network byte order */
	__u8 type;
	__u8 length;   /* of what follows, 4-byte words */
	__u8 at;       /* which of ids is asked now */
	__u8 count;    /* of ids */
	__u8 flags;    /* enum hop_flag */
	__u8 searched; /* how many were asked round the circle */
	__u64 ids[HOPS];
} __attribute__((packed));
_Static_assert(sizeof(struct hop_option) == 32, "a multiple of four");

enum hop_flag {
	HOP_FINAL = 1 << 0, /* everybody was asked: take it */
	HOP_ECHO = 1 << 1,  /* a probe: answer from the VIP */
	HOP_MOVED = 1 << 2, /* whoever was asked knew who has the flow */
	HOP_AGAIN = 1 << 3, /* so did that one: none is believed a third time */
	/* Nobody in the row has it: the others are asked, round the circle. The ids are who takes
	 * it in the end, who is asked now, and with whom the search began. */
	HOP_SEARCH = 1 << 4,
};
