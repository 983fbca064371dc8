package lab

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// plainWires makes both ends of a machine's wires treat packets as the ends of a cable do,
// so that XDP programs may send and pass on what they like.
//
// A veth hands on packets whose checksums nobody has computed yet: whoever reads them at
// the other end knows. A program that changes such a packet and sends it elsewhere does
// not, so they are computed here (and with that the segments of TCP are cut here).
// Frames that a program redirects into a veth are dropped where the other end neither
// has a program nor merges segments (GRO), which makes it poll.
func plainWires(s State, m MachineState, own int) error {
	fabric, err := openNamespace(s.Fabric)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fabric) }()
	var devices, ports []string
	for wire := range m.Wires {
		devices, ports = append(devices, m.device(wire)), append(ports, m.port(wire))
	}
	return errors.Join(
		inNamespace(own, func() error { return plain(devices) }),
		inNamespace(fabric, func() error { return plain(ports) }),
	)
}

// plain is about interfaces of the calling thread's namespace.
func plain(names []string) error {
	fd, err := offloadSocket()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for _, name := range names {
		for command, value := range map[uint32]uint32{setTransmitChecksum: 0, setMergeSegments: 1} {
			if _, err := askOffload(fd, name, command, value); err != nil {
				return fmt.Errorf("make %s treat packets as the end of a cable does: %w", name, err)
			}
		}
	}
	return nil
}

func offloadSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a socket to ask about interfaces: %w", err)
	}
	return fd, nil
}

// Commands of SIOCETHTOOL (linux/ethtool.h) that the unix package does not define.
const (
	transmitChecksum    = 0x16 // ETHTOOL_GTXCSUM
	setTransmitChecksum = 0x17 // ETHTOOL_STXCSUM
	mergeSegments       = 0x2b // ETHTOOL_GGRO
	setMergeSegments    = 0x2c // ETHTOOL_SGRO
)

// offload is struct ethtool_value.
type offload struct{ command, value uint32 }

// askOffload carries one command out and returns its value.
func askOffload(fd int, name string, command, value uint32) (uint32, error) {
	o := offload{command, value}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of struct ifreq
	}{data: unsafe.Pointer(&o)}
	if len(name) >= len(request.name) {
		return 0, fmt.Errorf("%w interface name %q", ErrInvalid, name)
	}
	copy(request.name[:], name)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&o)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0, fmt.Errorf("ethtool command %#x: %w", command, errno)
	}
	return o.value, nil
}
