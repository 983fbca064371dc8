/* QUIC: the server that wrote the connection ID (RFC 8999, RFC 9000, 17). */
#pragma once

#include "../lib/parse.h"
#include "maps.h"
#include "row.h"

#define QUIC_LONG 0x80
#define QUIC_TYPE 0x30
#define QUIC_V2 0x6b3343cf /* RFC 9369 gave the types other numbers */

/* The place of the backend that the connection ID names, or 0. payload has bytes, of what
 * the packet says, and end, of what the frame has. Connection IDs of Initial and 0-RTT
 * packets may be the client's inventions: they say nothing. */
static __noinline __u32 quic_server(__u8 *payload, __u32 bytes, void *end, const struct frontend *f)
{
	__u32 offset = f->quic >> 4, length = f->quic & 15, at = 1, left = 20;
	if ((void *)(payload + 6) > end || length == 0 || length > 8)
		return 0;
	if (payload[0] & QUIC_LONG) {
		__u32 version = bpf_ntohl(load32(payload + 1));
		__u8 type = (payload[0] & QUIC_TYPE) >> 4;
		if (version == QUIC_V2)
			type = (type - 1) & 3;
		if (version == 0 || type < 2)
			return 0;
		at = 6;
		left = payload[5];
	}
	at += offset;
	if (offset + length > left || at + length > bytes)
		return 0;
	struct quic_server_key key = {.frontend = f->index};
	for (__u32 i = 0; i < 8; i++) {
		if (i >= length)
			break;
		if ((void *)(payload + at + i + 1) > end)
			return 0;
		key.id[i] = payload[at + i];
	}
	__u32 *place = bpf_map_lookup_elem(&quic_servers, &key);
	if (!place)
		return 0;
	struct backend *b = backend_at(*place);
	return b && (b->flags & BACKEND_READY) ? *place : 0;
}
