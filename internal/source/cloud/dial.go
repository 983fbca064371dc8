package cloud

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Dialer makes a dialer for an upstream. It refuses addresses of the plane's own machine and link, since those answer
// the plane what they answer nobody else: a catalog or a name can lead there. It looks at the address that a name has
// just resolved to. Allow can allow them.
func Dialer(timeout time.Duration, allow Allow) *net.Dialer {
	d := &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if !allow.Loopback {
		d.Control = func(_, address string, _ syscall.RawConn) error { return refuseOwn(address) }
	}
	return d
}

func refuseOwn(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	a := at.Addr().Unmap()
	if a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() {
		return fmt.Errorf("loopback, link-local and multicast addresses are refused: %s does not name loopback", AllowFlag)
	}
	return nil
}
