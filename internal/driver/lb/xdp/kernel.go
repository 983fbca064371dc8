package xdp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// feature is something that the kernel must have.
type feature struct {
	name  string
	since string // of Linux
	probe func() error
}

// needed are the features, in the order in which the kernel got them, so that the first
// that is missing says least about the rest and the last says enough.
func needed() []feature {
	return []feature{
		{"BPF_MAP_TYPE_LPM_TRIE", "4.11", func() error { return features.HaveMapType(ebpf.LPMTrie) }},
		{"XDP programs that ask the FIB", "4.18", func() error { return features.HaveProgramHelper(ebpf.XDP, asm.FnFibLookup) }},
		{"bpf_skc_lookup_tcp", "5.2", func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkcLookupTcp) }},
		{"bpf_tcp_check_syncookie", "5.2", func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnTcpCheckSyncookie) }},
		{"maps in shared memory", "5.5", func() error { return features.HaveMapFlag(features.BPF_F_MMAPABLE) }},
		{"BPF ring buffers", "5.8", func() error { return features.HaveMapType(ebpf.RingBuf) }},
		{"tcx", "6.6", haveTCX},
	}
}

// haveTCX asks what is attached to the loopback, and changes nothing.
func haveTCX() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	_, err = link.QueryPrograms(link.QueryOptions{Target: lo.Attrs().Index, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, unix.EINVAL) {
		return ebpf.ErrNotSupported // the kernel does not know the hook
	}
	return err
}

// probeKernel returns nil, or why the kernel cannot carry the data plane out.
func probeKernel(features []feature) error {
	var missing []string
	for _, f := range features {
		switch err := f.probe(); {
		case err == nil:
		case errors.Is(err, ebpf.ErrNotSupported):
			missing = append(missing, fmt.Sprintf("%s (Linux %s)", f.name, f.since))
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("XDP data plane: %w: the agent may not load programs; it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root", errors.ErrUnsupported)
		default:
			return fmt.Errorf("XDP data plane: ask the kernel for %s: %w", f.name, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("XDP data plane: %w: Linux %s lacks %s; run Linux 6.6 or newer, or balance with nftables or IPVS",
		errors.ErrUnsupported, release(), strings.Join(missing, ", "))
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of an unknown version"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// memory of the machine, bytes; 0 if the kernel does not say.
func memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}
