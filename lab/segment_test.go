package lab

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routed is a client, a router and a server on two segments.
func routed(name string) Topology {
	return Topology{
		Name:     name,
		Segments: []Segment{{Name: "servers"}, {Name: "clients"}},
		Machines: []MachineSpec{
			{Name: "client", Segments: []string{"clients"}},
			{Name: "router", Role: RoleRouter, Segments: []string{"servers", "clients"}},
			{Name: "server"},
		},
	}
}

func TestRouterForwardsBetweenSegments(t *testing.T) {
	l := up(t, routed("routed"))
	client, server, router := l.Machine("client"), l.Machine("server"), l.Machine("router")
	for _, c := range []struct {
		from, to *Machine
		addr     netip.Addr
		seen     netip.Addr
	}{
		{client, server, server.Addr4(), client.Addr4()},
		{client, server, server.Addr6(), client.Addr6()},
		{server, client, client.Addr4(), server.Addr4()},
		{server, client, client.Addr6(), server.Addr6()},
	} {
		if got := echo(t, c.from, c.to, c.addr); got != c.seen.String() {
			t.Errorf("%s at %s is seen as %s, want %s", c.from.Name(), c.addr, got, c.seen)
		}
	}
	for segment, want := range map[string]string{"servers": "10.77.2.1 fd77::2:1", "clients": "10.78.2.1 fd78::2:1"} {
		if v4, v6, ok := router.On(segment); !ok || v4.String()+" "+v6.String() != want {
			t.Errorf("on %s the router is %s and %s, want %s", segment, v4, v6, want)
		}
	}
	if _, _, ok := client.On("servers"); ok {
		t.Error("the client has addresses on a segment that it is not on")
	}
	assertNothingInHostNamespace(t, l)
	state := l.State()
	down(t, l)
	assertGone(t, state)
}

// Connections of one client spread over the next hops of a route.
func TestRouterSpreadsByPort(t *testing.T) {
	topology := routed("spread")
	topology.Machines = append(topology.Machines, MachineSpec{Name: "second"})
	l := up(t, topology)
	h, err := l.Machine("router").Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, vip := range []netip.Addr{netip.MustParseAddr("10.30.0.1"), netip.MustParseAddr("fd30::1")} {
		dst := &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(vip.BitLen(), vip.BitLen())}
		route := &netlink.Route{Dst: dst}
		for _, name := range []string{"server", "second"} {
			m := l.Machine(name)
			gw := m.Addr4()
			if vip.Is6() {
				gw = m.Addr6()
			}
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: gw.AsSlice()})
			own, err := m.Netlink()
			if err != nil {
				t.Fatal(err)
			}
			lo, err := own.LinkByName("lo")
			if err == nil {
				err = own.AddrAdd(lo, &netlink.Addr{IPNet: dst, Flags: unix.IFA_F_NODAD})
			}
			own.Close()
			if err != nil {
				t.Fatal(err)
			}
			listener, err := m.Listen(t.Context(), "tcp", netip.AddrPortFrom(vip, 80).String())
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })}
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Close() })
		}
		if err := h.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		answers := map[string]int{}
		for range 60 { // one side stays empty less than once in 1e17 times
			answers[get(t, l.Machine("client"), "http://"+netip.AddrPortFrom(vip, 80).String()+"/")]++
		}
		if answers["server"] == 0 || answers["second"] == 0 || len(answers) != 2 {
			t.Errorf("%s: answers are %v, want some of both", vip, answers)
		}
	}
}

// A cable that is pulled and a segment that swallows everything look different to
// the machine, and the same to the others.
func TestCutAndBlackholedMachines(t *testing.T) {
	l := up(t, routed("cut"))
	client, server := l.Machine("client"), l.Machine("server")
	carrier := func() bool {
		h, err := server.Netlink()
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		link, err := h.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		return link.Attrs().OperState == netlink.OperUp
	}
	listener, err := server.Listen(t.Context(), "tcp", net.JoinHostPort(server.Addr4().String(), "80"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	alive := func(c net.Conn) bool { // whether what is said gets through
		t.Helper()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		served, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = served.Close() }()
		_ = served.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, err = served.Read(make([]byte, 1))
		return err == nil
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := client.Dial(deadline(t), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for _, c := range []struct {
		name    string
		on, off func() error
		carrier bool
	}{
		{"cut", func() error { return server.SetLink(t.Context(), false) }, func() error { return server.SetLink(t.Context(), true) }, false},
		{"blackhole", func() error { return server.SetBlackhole(true) }, func() error { return server.SetBlackhole(false) }, true},
	} {
		before := dial()
		for range 2 { // twice is as good as once
			if err := c.on(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		for ctx := deadline(t); carrier() != c.carrier; pause(ctx, t) {
		}
		if alive(before) {
			t.Errorf("%s: what the client says arrives", c.name)
		}
		for range 2 {
			if err := c.off(); err != nil {
				t.Fatalf("%s undone: %v", c.name, err)
			}
		}
		if got := echo(t, client, server, server.Addr6()); got != client.Addr6().String() {
			t.Errorf("%s undone: the client is seen as %s", c.name, got)
		}
		dial()
		served, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = served.Close()
	}
}

func TestMachinesComeAndGo(t *testing.T) {
	l := up(t, routed("elastic"))
	client := l.Machine("client")
	more, err := l.AddMachine(t.Context(), MachineSpec{Name: "more", Role: RoleEdge, Addresses: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := more.Addr4().String(); got != "10.77.4.1" {
		t.Errorf("the machine that came has %s", got)
	}
	if got := echo(t, client, more, more.Addrs6()[1]); got != client.Addr6().String() {
		t.Errorf("the client is seen as %s", got)
	}
	for name, spec := range map[string]MachineSpec{"used twice": {Name: "more"}, "no segment": {Name: "x", Segments: []string{"y"}}} {
		if _, err := l.AddMachine(t.Context(), spec); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("add a machine: %v, want one that says %q", err, name)
		}
	}
	p := start(t, more, ProcessSpec{Name: "sleeper", Argv: []string{os.Args[0]}, Env: []string{asSleeper + "=1"}})
	state := l.State()
	if err := l.RemoveMachine(t.Context(), "more"); err != nil {
		t.Fatal(err)
	}
	if p.Running() || p.Pid().Alive() {
		t.Error("a process outlived its machine")
	}
	if _, ok := l.Lookup("more"); ok || len(l.Machines()) != 3 || len(l.State().Machines) != 3 || len(l.State().Processes) != 0 {
		t.Errorf("the machine is still there: %+v", l.State())
	}
	gone := state.Machines[3]
	for _, path := range []string{gone.Namespace, gone.Dir} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if _, err := more.Dial(t.Context(), "tcp", "10.77.3.1:80"); err == nil {
		t.Error("a machine that has gone can dial")
	}
	if err := l.RemoveMachine(t.Context(), "more"); !errors.Is(err, ErrInvalid) {
		t.Errorf("remove it again: %v, want ErrInvalid", err)
	}

	again, err := l.AddMachine(t.Context(), MachineSpec{Name: "again"})
	if err != nil {
		t.Fatal(err)
	}
	if got := echo(t, client, again, again.Addr4()); again.Addr4() != more.Addr4() || got != client.Addr4().String() {
		t.Errorf("the next machine has %s, and sees the client as %s", again.Addr4(), got)
	}
	state = l.State()
	down(t, l)
	assertGone(t, state)
	if _, err := l.AddMachine(t.Context(), MachineSpec{Name: "late"}); err == nil {
		t.Error("a lab that is down took a machine")
	}
}
