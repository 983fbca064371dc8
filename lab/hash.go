package lab

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetHash makes an interface take packets as if they came off a wire. Those off a
// veth bear the hash of their sender's socket, a random number that the sender draws
// again when it sends again (net.core.txrehash). A kernel that spreads over next hops
// takes it for the hash of addresses and ports: connections would wander.
func forgetHash(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	program, err := loadProgram([]instruction{
		{code: unix.BPF_JMP | unix.BPF_CALL, immediate: setHashInvalid}, // of the packet, which r1 holds
		{code: unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K, immediate: actUnspec},
		{code: unix.BPF_JMP | unix.BPF_EXIT},
	})
	if err != nil {
		return fmt.Errorf("forget the hashes of packets of %s: %w", name, err)
	}
	defer func() { _ = unix.Close(program) }() // the interface holds it
	at := link.Attrs().Index
	if err := h.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: at, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)}}); err != nil {
		return fmt.Errorf("forget the hashes of packets of %s: add clsact: %w", name, err)
	}
	if err := h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: at, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          program, Name: "forget_hash", DirectAction: true,
	}); err != nil {
		return fmt.Errorf("forget the hashes of packets of %s: add the filter: %w", name, err)
	}
	return nil
}

// instruction of BPF (RFC 9669). Neither of ours has registers other than 0.
type instruction struct {
	code      uint8
	registers uint8
	offset    int16
	immediate int32
}

// What the headers of Linux define and the unix package does not.
const (
	setHashInvalid = 41 // BPF_FUNC_set_hash_invalid
	actUnspec      = -1 // TC_ACT_UNSPEC: whoever is next decides
)

// loadProgram returns a descriptor of a classifier.
func loadProgram(program []instruction) (int, error) {
	license := []byte("GPL\x00")
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&program[0])
	pins.Pin(&license[0])
	// The beginning of union bpf_attr for BPF_PROG_LOAD; the kernel takes the rest for 0.
	attr := struct {
		kind, count      uint32
		program, license uint64
		logLevel         uint32
		logSize          uint32
		log              uint64
	}{
		kind: unix.BPF_PROG_TYPE_SCHED_CLS, count: uint32(len(program)),
		program: uint64(uintptr(unsafe.Pointer(&program[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return -1, fmt.Errorf("load a BPF program: %w", errno)
	}
	unix.CloseOnExec(int(fd))
	return int(fd), nil
}
