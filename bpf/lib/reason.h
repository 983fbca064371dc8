/* Why a packet was dropped, and what else is counted: keys of the drops map. The names
 * are those that people see: REASON(NAME, text). Append only. */
#pragma once

#define REASONS                                                \
	REASON(NONE, "none")                                   \
	REASON(TRUNCATED, "truncated")                         \
	REASON(BAD_HEADER, "bad-header")                       \
	REASON(BAD_CHECKSUM, "bad-checksum")                   \
	REASON(BAD_EXTENSION, "bad-extension-header")          \
	REASON(MARTIAN, "martian-source")                      \
	REASON(LOOP, "ttl-exceeded")                           \
	REASON(SOURCE_DENIED, "source-denied")                 \
	REASON(NEW_FLOW_LIMIT, "new-flow-limit")               \
	REASON(NO_BACKEND, "no-backend")                       \
	REASON(NO_ROUTE, "no-route")                           \
	REASON(TOO_BIG, "packet-too-big")                      \
	REASON(NO_PORT, "nat-ports-exhausted")                 \
	REASON(FRAGMENT, "fragment-of-unknown-flow")           \
	REASON(ICMP_UNKNOWN, "icmp-of-unknown-flow")           \
	REASON(NO_HEADROOM, "no-headroom")                     \
	REASON(NOT_A_TUNNEL, "tunnel-from-stranger")           \
	REASON(BAD_TUNNEL, "bad-tunnel-header")                \
	REASON(NOT_HERE, "backend-not-here")                   \
	REASON(HOP_LIMIT, "hop-limit")                         \
	REASON(MAP_FULL, "map-full")                           \
	REASON(INTERNAL, "internal")                           \
	REASON(UNSUPPORTED_PROTOCOL, "unsupported-protocol")   \
	REASON(AMBIGUOUS, "client-port-in-use-at-another-vip") \
	REASON(NO_FRONTEND, "no-frontend")                     \
	REASON(OWN_TUNNEL, "tunnel-from-own-address")

enum reason {
#define REASON(name, text) REASON_##name,
	REASONS
#undef REASON
		REASON_COUNT
};
