/* What all programs share with the agent: keys and values of maps. Go's types are generated
 * from these (bpf2go). Addresses are 16 bytes, IPv4 mapped (RFC 4291, 2.5.5.2), network byte
 * order; ports are network byte order; everything else is host byte order.
 *
 * The layout of a pinned map must not change: raise LAYOUT instead, and the maps of the
 * other layout are left to the program that made them. */
#pragma once

#include <linux/types.h>

#define LAYOUT 2

struct address {
	union {
		__u8 bytes[16];
		__u32 words[4];
		__u64 halves[2];
	};
};

/* next_hops: array; kept up to date by the agent from routes and neighbours. */
struct next_hop {
	__u32 device; /* interface index; 0: not resolved, ask the FIB */
	__u16 mtu;    /* of the way, bytes, without link header */
	__u8 to[6];   /* link addresses */
	__u8 from[6];
	__u16 vlan;            /* identifier to tag with; 0: none. device is what carries the tag */
	__u32 source4;         /* of outer headers; 0: settings.tunnel4 */
	struct address source; /* of outer headers over IPv6; zero: settings.tunnel6 */
	__u8 flags;            /* enum next_hop_flag */
	__u8 zero[7];
};

enum next_hop_flag {
	NEXT_HOP_REDIRECT = 1 << 0, /* also where it came from: a veth's XDP_TX asks too much of its peer */
	NEXT_HOP_KERNEL = 1 << 1,   /* programs' own: the neighbour is not known, the kernel asks for it */
};

/* machines: hash: address -> __u32, in next_hops: tunnel endpoints from which packets are taken. */

/* The UDP port of tunnels (RFC 8926, 3.3). */
#define GENEVE_PORT 6081

/* Counters: per-CPU arrays */
struct counter {
	__u64 packets;
	__u64 bytes;
	__u64 flows;
};

/* settings: array of one */
struct settings {
	struct address tunnel4; /* our tunnel endpoints */
	struct address tunnel6;
	__u16 nat_ports[2][2]; /* for the load balancer's NAT: first and last of two ranges, host byte order; 0: none */
	__u8 capture;          /* dropped packets go to the captures ring buffer */
	__u8 zero[3];
};

/* links: array of one: link addresses at which packets are for this machine, as the first
 * eight bytes of a frame are loaded, without the last two; the lowest 16 bits are zero. None:
 * all are. */
#define LINKS 8

struct links {
	__u64 at[LINKS];
};

/* captures: ring buffer of these: the beginning of a packet that was dropped */
#define CAPTURED 192

struct capture {
	__u64 at;     /* nanoseconds since boot */
	__u32 reason; /* enum reason */
	__u32 device; /* interface it came from */
	__u32 length; /* of the packet */
	__u32 bytes;  /* of them here */
	__u8 data[CAPTURED];
};
