package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Machine is one machine of a lab: a network namespace with addresses and a
// directory. Its methods may be called concurrently.
type Machine struct {
	lab       *Lab
	state     MachineState
	namespace int

	mu     sync.Mutex
	closed bool
	idle   []*http.Transport // to be closed with the machine
}

// Name of the machine.
func (m *Machine) Name() string { return m.state.Name }

// Role of the machine.
func (m *Machine) Role() Role { return m.state.Role }

// Addr4 is the machine's primary IPv4 address, on its first segment.
func (m *Machine) Addr4() netip.Addr { return m.state.Addr4[0] }

// Addr6 is the machine's primary IPv6 address, on its first segment.
func (m *Machine) Addr6() netip.Addr { return m.state.Addr6[0] }

// Addrs4 are all its IPv4 addresses on its first segment, the primary one first.
func (m *Machine) Addrs4() []netip.Addr { return m.state.Addr4 }

// Addrs6 are all its IPv6 addresses on its first segment, the primary one first.
func (m *Machine) Addrs6() []netip.Addr { return m.state.Addr6 }

// On returns the machine's primary addresses on a segment, and false if it is not
// on that one.
func (m *Machine) On(segment string) (v4, v6 netip.Addr, ok bool) {
	w, ok := m.state.on(segment)
	if !ok {
		return v4, v6, false
	}
	return w.Addr4[0], w.Addr6[0], true
}

// Networks are the networks of the segment that a machine is on, and false if it
// is not on that one.
func (m *Machine) Networks(segment string) (v4, v6 netip.Prefix, ok bool) {
	if _, ok := m.state.on(segment); !ok {
		return v4, v6, false
	}
	s := m.lab.State().segment(segment)
	return s.Net4, s.Net6, true
}

// Namespace is a file that stands for the machine's network namespace.
func (m *Machine) Namespace() string { return m.state.Namespace }

// Dir makes and returns a directory of the machine's own, which goes with the
// lab. Programs of different machines share the host's files and need such
// directories in place of /run and /var/lib.
func (m *Machine) Dir(name string) (string, error) {
	path := filepath.Join(m.state.Dir, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make directory of machine %s: %w", m.state.Name, err)
	}
	return path, nil
}

// descriptor returns a descriptor of the machine's namespace for the caller to close.
func (m *Machine) descriptor() (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return -1, fmt.Errorf("machine %s: it was removed, or its lab is down", m.state.Name)
	}
	fd, err := unix.FcntlInt(uintptr(m.namespace), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("machine %s: %w", m.state.Name, err)
	}
	return fd, nil
}

// inside runs f on a thread in the machine's namespace (see inNamespace).
func (m *Machine) inside(f func() error) error {
	fd, err := m.descriptor()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return inNamespace(fd, f)
}

// Netlink returns a handle that asks and changes the kernel in the machine:
// addresses, routes, links. The caller closes it.
func (m *Machine) Netlink() (*netlink.Handle, error) {
	fd, err := m.descriptor()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	h, err := netlink.NewHandleAt(netns.NsHandle(fd))
	if err != nil {
		return nil, fmt.Errorf("open netlink in machine %s: %w", m.state.Name, err)
	}
	return h, nil
}

// awaitLinks returns once the machine can be reached.
func (m *Machine) awaitLinks(ctx context.Context) error {
	h, err := m.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	for wire := range m.state.Wires {
		if err := awaitLink(ctx, h, m.state.device(wire)); err != nil {
			return err
		}
	}
	return nil
}

// Command is an exec.Cmd whose process runs in a machine. Only the methods that
// start a process differ.
type Command struct {
	*exec.Cmd
	machine *Machine
}

// Command returns a command that runs argv in the machine; ctx kills it.
func (m *Machine) Command(ctx context.Context, argv ...string) *Command {
	return &Command{Cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), machine: m}
}

// Start is exec.Cmd's, in the machine.
func (c *Command) Start() error {
	return c.machine.inside(c.Cmd.Start)
}

// Run is exec.Cmd's, in the machine.
func (c *Command) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output is exec.Cmd's, in the machine. On failure the error is an
// *exec.ExitError that holds what was written to standard error.
func (c *Command) Output() (out []byte, err error) {
	err = c.machine.inside(func() error {
		out, err = c.Cmd.Output()
		return err
	})
	return out, err
}

// CombinedOutput is exec.Cmd's, in the machine.
func (c *Command) CombinedOutput() (out []byte, err error) {
	err = c.machine.inside(func() error {
		out, err = c.Cmd.CombinedOutput()
		return err
	})
	return out, err
}

// Exec replaces this process by argv, in the machine. It returns only on error.
func (m *Machine) Exec(argv, env []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("exec in machine %s: %w", m.state.Name, err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(m.namespace, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter machine %s: %w", m.state.Name, err)
	}
	return fmt.Errorf("exec %s in machine %s: %w", path, m.state.Name, unix.Exec(path, argv, env))
}

// Dial connects from the machine. The address is an IP literal and a port: a
// machine has no names to resolve.
func (m *Machine) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial from machine %s: %w", m.state.Name, err)
	}
	// With one literal address the dialer makes its socket on the calling goroutine.
	err = m.inside(func() error {
		var d net.Dialer
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// DialFrom connects as Dial does, from one of the machine's addresses and a port that the
// kernel chooses. It tells bound of both before the first packet leaves, so that also of a
// connection that is refused it is known whose it was.
func (m *Machine) DialFrom(ctx context.Context, network string, from netip.Addr, address string, bound func(netip.AddrPort)) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial from machine %s: %w", m.state.Name, err)
	}
	bind := func(socket int) error {
		var local unix.Sockaddr = &unix.SockaddrInet6{Addr: from.As16()}
		if from.Is4() {
			local = &unix.SockaddrInet4{Addr: from.As4()}
		}
		if err := unix.Bind(socket, local); err != nil {
			return fmt.Errorf("bind to %s in machine %s: %w", from, m.state.Name, err)
		}
		name, err := unix.Getsockname(socket)
		if err != nil {
			return fmt.Errorf("read the port bound in machine %s: %w", m.state.Name, err)
		}
		switch name := name.(type) {
		case *unix.SockaddrInet4:
			bound(netip.AddrPortFrom(from, uint16(name.Port)))
		case *unix.SockaddrInet6:
			bound(netip.AddrPortFrom(from, uint16(name.Port)))
		}
		return nil
	}
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(socket uintptr) { failed = bind(int(socket)) }); err != nil {
			return err
		}
		return failed
	}}
	err = m.inside(func() error {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens in the machine. The address is an IP literal, or nothing for
// all addresses, and a port.
func (m *Machine) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	err = m.inside(func() error {
		var c net.ListenConfig
		l, err = c.Listen(ctx, network, address)
		return err
	})
	return l, err
}

// ListenPacket opens a datagram socket in the machine.
func (m *Machine) ListenPacket(ctx context.Context, network, address string) (c net.PacketConn, err error) {
	err = m.inside(func() error {
		var lc net.ListenConfig
		c, err = lc.ListenPacket(ctx, network, address)
		return err
	})
	return c, err
}

// HTTPClient returns a new client whose connections start in the machine. It
// follows no redirects and uses no proxy. Its idle connections end with the lab.
func (m *Machine) HTTPClient() *http.Client {
	t := &http.Transport{DialContext: m.Dial, MaxIdleConnsPerHost: 16}
	m.mu.Lock()
	m.idle = append(m.idle, t)
	m.mu.Unlock()
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Residents returns the processes that are in the machine now, whoever started
// them, without this process.
func (m *Machine) Residents() ([]Resident, error) {
	pids, err := residents([]string{m.state.Namespace})
	if err != nil {
		return nil, fmt.Errorf("list processes of machine %s: %w", m.state.Name, err)
	}
	found := make([]Resident, 0, len(pids))
	for _, p := range pids {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.ID))
		if err != nil {
			continue // it has just ended
		}
		found = append(found, Resident{Pid: p, Exe: exe, CommandLine: commandLine(p.ID)})
	}
	return found, nil
}

// Resident is a process in a machine.
type Resident struct {
	Pid Pid
	// Exe is the path of its program.
	Exe string
	// CommandLine is its arguments, joined by spaces.
	CommandLine string
}

// Kill9 kills that very process as if by a power cut of its own. The error wraps
// os.ErrProcessDone when it has ended before.
func (r Resident) Kill9() error { return r.Pid.signal(unix.SIGKILL) }

func (m *Machine) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	for _, t := range m.idle {
		t.CloseIdleConnections()
	}
	_ = unix.Close(m.namespace)
}
