package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/muffle"
)

// acceptRetry is the pause after a connection could not be accepted.
const acceptRetry = 100 * time.Millisecond

// accepts reports whether the peer may open the connection.
func accepts(c model.Peer) bool { return c.Connection != model.ConnectionActive }

// listenKey is a port at which peers may connect: for a family, and a device to which it is bound.
type listenKey struct {
	v6     bool
	device string
}

func listenKeyOf(c model.Peer) listenKey { return listenKey{v6: c.Address.Is6(), device: c.Device} }

// listeners are the listening sockets. There are none unless a peer of this machine may connect, and whoever is no such
// peer gets a reset and not a byte.
type listeners struct {
	log  *slog.Logger
	port uint16
	hand func(*net.TCPConn, netip.Addr, string) // takes a connection over

	mu   sync.Mutex
	open map[listenKey]*openListener
	shut map[listenKey]error // why one could not be opened
}

type openListener struct {
	listener *net.TCPListener
	keys     map[netip.Addr]model.Redacted
}

// set opens the ports that the peers need, and closes the others. One that fails is tried again with the next set. It
// reports whether something became different.
func (d *listeners) set(peers []model.Peer) (changed bool) {
	wanted := map[listenKey]map[netip.Addr]model.Redacted{}
	for _, c := range peers {
		if !accepts(c) || check(c) != nil {
			continue
		}
		at := listenKeyOf(c)
		if wanted[at] == nil {
			wanted[at] = map[netip.Addr]model.Redacted{}
		}
		if c.Password != "" {
			wanted[at][c.Address.WithZone("")] = c.Password
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for at, o := range d.open {
		// With other passwords it is another socket: connections that wait in this one may not be signed by them.
		if keys, stays := wanted[at]; !stays || !maps.Equal(keys, o.keys) {
			_ = o.listener.Close()
			delete(d.open, at)
			changed = true
		}
	}
	for at := range d.shut {
		if _, stays := wanted[at]; !stays {
			delete(d.shut, at)
		}
	}
	for at, keys := range wanted {
		if d.open[at] != nil {
			continue
		}
		l, err := at.listen(d.port, keys)
		if before := d.shut[at]; (err == nil) != (before == nil) || err != nil && err.Error() != before.Error() {
			changed = true
			if err != nil {
				d.log.Warn("peers cannot connect to this machine", "error", err)
			}
		}
		if err != nil {
			d.shut[at] = err
			continue
		}
		delete(d.shut, at)
		d.open[at] = &openListener{listener: l, keys: keys}
		changed = true
		go d.accept(l, at)
	}
	return changed
}

// failed reports whether a port could not be opened.
func (d *listeners) failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.shut) > 0
}

// trouble is why the peer cannot connect, "" if it can or need not.
func (d *listeners) trouble(c model.Peer) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.shut[listenKeyOf(c)]
	switch {
	case !accepts(c) || err == nil:
		return ""
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("it cannot connect to this machine, because another program has port %d here (a router's own BGP daemon?): stop that program, or have this machine connect (connection: Active)", d.port)
	}
	return "it cannot connect to this machine: " + err.Error()
}

// listen opens the socket. It has the passwords before anybody can connect. Its SYN-ACKs leave with the full TTL: a
// router with GTSM (RFC 5082) hears no other, and no router minds; what follows is as prepare has it.
func (at listenKey) listen(port uint16, keys map[netip.Addr]model.Redacted) (*net.TCPListener, error) {
	network, host := "tcp4", "0.0.0.0"
	if at.v6 {
		network, host = "tcp6", "::"
	}
	l := net.ListenConfig{KeepAlive: -1, Control: control(func(fd int) error {
		if err := bind(fd, at.device); err != nil {
			return err
		}
		level, option := unix.IPPROTO_IP, unix.IP_TTL
		if at.v6 {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
		}
		if err := unix.SetsockoptInt(fd, level, option, fullTTL); err != nil {
			return os.NewSyscallError("set the TTL", err)
		}
		for _, address := range slices.SortedFunc(maps.Keys(keys), netip.Addr.Compare) {
			if err := sign(fd, address, string(keys[address])); err != nil {
				return err
			}
		}
		return nil
	})}
	listener, err := l.Listen(context.Background(), network, net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	return listener.(*net.TCPListener), nil
}

func (d *listeners) accept(l *net.TCPListener, at listenKey) {
	often := muffle.New(d.log, time.Now)
	defer often.Close()
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			often.Warn("accept", "cannot accept a connection; trying again", "error", err)
			time.Sleep(acceptRetry)
			continue
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		d.hand(conn, from, at.device)
	}
}

// close closes all of them.
func (d *listeners) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at, o := range d.open {
		_ = o.listener.Close()
		delete(d.open, at)
	}
}
