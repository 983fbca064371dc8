package xdp

// reasons are the texts of bpf/lib/reason.h, by number: why packets are dropped. A test holds
// the two together.
var reasons = [...]string{
	bpfReasonREASON_NONE:                 "none",
	bpfReasonREASON_TRUNCATED:            "truncated",
	bpfReasonREASON_BAD_HEADER:           "bad-header",
	bpfReasonREASON_BAD_CHECKSUM:         "bad-checksum",
	bpfReasonREASON_BAD_EXTENSION:        "bad-extension-header",
	bpfReasonREASON_MARTIAN:              "martian-source",
	bpfReasonREASON_LOOP:                 "ttl-exceeded",
	bpfReasonREASON_SOURCE_DENIED:        "source-denied",
	bpfReasonREASON_NEW_FLOW_LIMIT:       "new-flow-limit",
	bpfReasonREASON_NO_BACKEND:           "no-backend",
	bpfReasonREASON_NO_ROUTE:             "no-route",
	bpfReasonREASON_TOO_BIG:              "packet-too-big",
	bpfReasonREASON_NO_PORT:              "nat-ports-exhausted",
	bpfReasonREASON_FRAGMENT:             "fragment-of-unknown-flow",
	bpfReasonREASON_ICMP_UNKNOWN:         "icmp-of-unknown-flow",
	bpfReasonREASON_NO_HEADROOM:          "no-headroom",
	bpfReasonREASON_NOT_A_TUNNEL:         "tunnel-from-stranger",
	bpfReasonREASON_BAD_TUNNEL:           "bad-tunnel-header",
	bpfReasonREASON_NOT_HERE:             "backend-not-here",
	bpfReasonREASON_HOP_LIMIT:            "hop-limit",
	bpfReasonREASON_MAP_FULL:             "map-full",
	bpfReasonREASON_INTERNAL:             "internal",
	bpfReasonREASON_UNSUPPORTED_PROTOCOL: "unsupported-protocol",
	bpfReasonREASON_AMBIGUOUS:            "client-port-in-use-at-another-vip",
	bpfReasonREASON_NO_FRONTEND:          "no-frontend",
	bpfReasonREASON_OWN_TUNNEL:           "tunnel-from-own-address",
}

// Reasons are the names of all reasons for which packets are dropped.
func Reasons() []string { return append([]string(nil), reasons[1:]...) }

func reasonName(n uint32) string {
	if int(n) < len(reasons) {
		return reasons[n]
	}
	return "unknown"
}
