package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// reasons are the texts of bpf/lib/reason.h, by number: why packets are dropped. A test holds
// the two together.
var reasons = [...]string{
	libReasonREASON_NONE:                 "none",
	libReasonREASON_TRUNCATED:            "truncated",
	libReasonREASON_BAD_HEADER:           "bad-header",
	libReasonREASON_BAD_CHECKSUM:         "bad-checksum",
	libReasonREASON_BAD_EXTENSION:        "bad-extension-header",
	libReasonREASON_MARTIAN:              "martian-source",
	libReasonREASON_LOOP:                 "ttl-exceeded",
	libReasonREASON_SOURCE_DENIED:        "source-denied",
	libReasonREASON_NEW_FLOW_LIMIT:       "new-flow-limit",
	libReasonREASON_NO_BACKEND:           "no-backend",
	libReasonREASON_NO_ROUTE:             "no-route",
	libReasonREASON_TOO_BIG:              "packet-too-big",
	libReasonREASON_NO_PORT:              "nat-ports-exhausted",
	libReasonREASON_FRAGMENT:             "fragment-of-unknown-flow",
	libReasonREASON_ICMP_UNKNOWN:         "icmp-of-unknown-flow",
	libReasonREASON_NO_HEADROOM:          "no-headroom",
	libReasonREASON_NOT_A_TUNNEL:         "tunnel-from-stranger",
	libReasonREASON_BAD_TUNNEL:           "bad-tunnel-header",
	libReasonREASON_NOT_HERE:             "backend-not-here",
	libReasonREASON_HOP_LIMIT:            "hop-limit",
	libReasonREASON_MAP_FULL:             "map-full",
	libReasonREASON_INTERNAL:             "internal",
	libReasonREASON_UNSUPPORTED_PROTOCOL: "unsupported-protocol",
	libReasonREASON_AMBIGUOUS:            "client-port-in-use-at-another-vip",
	libReasonREASON_NO_FRONTEND:          "no-frontend",
	libReasonREASON_OWN_TUNNEL:           "tunnel-from-own-address",
}

// Reasons are the names of all reasons for which packets are dropped.
func Reasons() []string { return append([]string(nil), reasons[1:]...) }

func reasonName(n uint32) string {
	if int(n) < len(reasons) {
		return reasons[n]
	}
	return "unknown"
}

// Drops are the packets that were dropped, by the name of the reason, as the map drops counts
// them on so many CPUs.
func Drops(m *ebpf.Map, cpus int) (map[string]uint64, error) {
	drops := make(map[string]uint64, len(reasons))
	for i, name := range reasons[1:] {
		each := make([]uint64, cpus)
		if err := m.Lookup(uint32(i+1), &each); err != nil {
			return nil, fmt.Errorf("read counters of drops: %w", err)
		}
		for _, n := range each {
			drops[name] += n
		}
	}
	return drops, nil
}
