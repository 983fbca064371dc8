package lbtest

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is asked of interfaces (linux/ethtool.h).
const (
	setTransmitChecksum = 0x17
	setMergeSegments    = 0x2c
)

// plain makes an end of a wire treat packets as that of a cable does: checksums are right
// on it, and a program may redirect frames into it (as the lab's wires are).
func plain(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for command, value := range map[uint32]uint32{setTransmitChecksum: 0, setMergeSegments: 1} {
		ask := struct{ command, value uint32 }{command, value}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data uintptr
			_    [16]byte
		}{data: uintptr(unsafe.Pointer(&ask))}
		copy(request.name[:unix.IFNAMSIZ-1], name)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		runtime.KeepAlive(&ask)
		if errno != 0 {
			return fmt.Errorf("make %s treat packets as the end of a cable does: %w", name, errno)
		}
	}
	return nil
}
