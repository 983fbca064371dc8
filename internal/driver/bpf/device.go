package bpf

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Device is an interface that programs can be attached to.
type Device struct {
	Name  string
	Index int
	MTU   int
	kind  string   // as netlink says: veth, device and so on
	links []uint64 // link addresses of frames that are for the machine, as programs have them
}

// Commands of SIOCETHTOOL (linux/ethtool.h) that the unix package does not define.
const (
	mergeSegments    = 0x2b // ETHTOOL_GGRO
	setMergeSegments = 0x2c // ETHTOOL_SGRO
)

// SetGRO turns GRO of an interface on or off, and returns the previous setting.
func SetGRO(name string, on bool) (was bool, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("open a socket to ask about interfaces: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	before, err := ethtool(fd, name, mergeSegments, 0)
	if err != nil {
		return false, fmt.Errorf("ask whether %s merges segments: %w", name, err)
	}
	was = before != 0
	if was == on {
		return was, nil
	}
	var value uint32
	if on {
		value = 1
	}
	if _, err := ethtool(fd, name, setMergeSegments, value); err != nil {
		return was, fmt.Errorf("set whether %s merges segments: %w", name, err)
	}
	return was, nil
}

func ethtool(fd int, name string, command, value uint32) (uint32, error) {
	o := struct{ command, value uint32 }{command, value} // struct ethtool_value
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of struct ifreq
	}{data: unsafe.Pointer(&o)}
	copy(request.name[:len(request.name)-1], name)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&o)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0, errno
	}
	return o.value, nil
}
