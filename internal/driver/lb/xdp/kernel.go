package xdp

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"fairlead.dev/internal/driver/bpf"
)

// needed are the features, in the order in which the kernel got them.
func needed() []bpf.Feature {
	return []bpf.Feature{
		{Name: "BPF_MAP_TYPE_LPM_TRIE", Since: "4.11", Probe: func() error { return features.HaveMapType(ebpf.LPMTrie) }},
		{Name: "XDP programs that ask the FIB", Since: "4.18", Probe: func() error { return features.HaveProgramHelper(ebpf.XDP, asm.FnFibLookup) }},
		{Name: "bpf_skc_lookup_tcp", Since: "5.2", Probe: func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkcLookupTcp) }},
		{Name: "bpf_tcp_check_syncookie", Since: "5.2", Probe: func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnTcpCheckSyncookie) }},
		{Name: "maps in shared memory", Since: "5.5", Probe: func() error { return features.HaveMapFlag(features.BPF_F_MMAPABLE) }},
		{Name: "BPF ring buffers", Since: "5.8", Probe: func() error { return features.HaveMapType(ebpf.RingBuf) }},
		{Name: "tcx", Since: "6.6", Probe: bpf.HaveTCX},
	}
}

// probeKernel returns nil, or why the kernel cannot carry the data plane out.
func probeKernel(list []bpf.Feature) error {
	if err := bpf.Probe(list, "run Linux 6.6 or newer, or balance with nftables or IPVS"); err != nil {
		return fmt.Errorf("XDP data plane: %w", err)
	}
	return nil
}
