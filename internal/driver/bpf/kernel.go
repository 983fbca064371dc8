package bpf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Feature is something that the kernel must have.
type Feature struct {
	Name  string
	Since string // of Linux
	Probe func() error
}

// HaveTCX probes for the hooks of tcx. It queries the attachments of the loopback, and changes nothing.
func HaveTCX() error {
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

// Probe returns nil, or an error that names the first feature that the kernel lacks, and instead
// as the remedy. Features must be in the order in which the kernel got them.
func Probe(features []Feature, instead string) error {
	var missing []string
	for _, f := range features {
		switch err := f.Probe(); {
		case err == nil:
		case errors.Is(err, ebpf.ErrNotSupported):
			missing = append(missing, fmt.Sprintf("%s (Linux %s)", f.Name, f.Since))
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("%w: the agent may not load programs; it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root", errors.ErrUnsupported)
		default:
			return fmt.Errorf("ask the kernel for %s: %w", f.Name, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: Linux %s lacks %s; %s", errors.ErrUnsupported, release(), strings.Join(missing, ", "), instead)
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of an unknown version"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Memory of the machine, bytes; 0 if the kernel does not say.
func Memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}
