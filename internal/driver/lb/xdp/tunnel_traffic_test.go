package xdp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
)

// ask makes a request on an open connection and returns the answer's body.
func (w *wires) ask(c net.Conn, r *bufio.Reader, path string, body []byte) []byte {
	w.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://vip"+path, bytes.NewReader(body))
	must(w.T, err)
	must(w.T, request.Write(c))
	answer, err := http.ReadResponse(r, request)
	if err != nil {
		w.Fatalf("%v; %s", err, w.state())
	}
	defer func() { _ = answer.Body.Close() }()
	out, err := io.ReadAll(answer.Body)
	if err != nil {
		w.Fatalf("%v; %s", err, w.state())
	}
	return out
}

// name asks who is at the other end, which must be one of those.
func (w *wires) name(c net.Conn, r *bufio.Reader, want string) {
	w.Helper()
	got := strings.Fields(string(w.ask(c, r, "/", []byte("hello"))))
	if len(got) != 3 || got[0] != want {
		w.Fatalf("%v answers, want %s; %s", got, want, w.state())
	}
}

// transfer sends much in both directions.
func (w *wires) transfer(vip netip.Addr) {
	w.Helper()
	c := w.dial(vip)
	r := bufio.NewReader(c)
	body := make([]byte, largeBody)
	_, _ = pattern{}.Read(body)
	got := strings.Fields(string(w.ask(c, r, "/", body)))
	if len(got) != 3 || got[2] != fmt.Sprintf("%x", sha256.Sum256(body)) {
		w.Fatalf("what was sent did not arrive: %v", got)
	}
	if large := w.ask(c, r, "/large", nil); len(large) != largeBody {
		w.Fatalf("%d bytes arrived, want %d", len(large), largeBody)
	}
}

func TestTunnelWires(t *testing.T) {
	w := newWires(t)
	w.listen()
	w.lead("lb1")
	for _, outer := range []netip.Addr{w.nodes["lb1"].m.Addr4(), w.nodes["lb1"].m.Addr6()} {
		w.serve("lb1", bpfModeMODE_GENEVE, outer, "be1", "be2")
		for _, vip := range wireVIPs {
			c := w.dial(vip)
			r := bufio.NewReader(c)
			got := strings.Fields(string(w.ask(c, r, "/", []byte("hello"))))
			if want := c.LocalAddr().String(); len(got) != 3 || got[0] != "be1" || got[1] != want {
				t.Fatalf("%v, want be1 and the client as it is, %s", got, want)
			}
			// Segments fit: none comes back as too big.
			raw, err := c.(*net.TCPConn).SyscallConn()
			must(t, err)
			var mss int
			must(t, raw.Control(func(fd uintptr) { mss, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) }))
			must(t, err)
			overhead := 20 + 8 + 8 + 32 + 20 + 20 + 12 // with time stamps
			if outer.Is6() {
				overhead += 20
			}
			if vip.Is6() {
				overhead += 20
			}
			if mss != 1500-overhead {
				t.Errorf("%s in %s: segments of %d, want %d", vip, outer, mss, 1500-overhead)
			}
			w.transfer(vip)
		}
	}
	if n := w.nodes["lb1"].dropped(bpfReasonREASON_TOO_BIG); n != 0 {
		t.Errorf("%d packets were too big", n)
	}
}

// datagram sends one to a VIP and returns the answer, sending again until there is one.
func (w *wires) datagram(c net.Conn, payload string) string {
	w.Helper()
	b := make([]byte, 65536)
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		_, err := io.WriteString(c, payload)
		must(w.T, err)
		must(w.T, c.SetReadDeadline(time.Now().Add(time.Second)))
		if n, err := c.Read(b); err == nil {
			return string(b[:n])
		}
	}
	w.Fatalf("no answer to %d bytes; %s", len(payload), w.state())
	return ""
}

func TestTunnelWiresDatagrams(t *testing.T) {
	w := newWires(t)
	w.listen()
	w.lead("lb1")
	for _, mode := range []bpfMode{bpfModeMODE_GENEVE, bpfModeMODE_NAT} {
		for _, vip := range wireVIPs {
			w.serve("lb1", mode, vip, "be1", "be2")
			c, err := w.client.Dial(t.Context(), "udp", netip.AddrPortFrom(vip, 80).String())
			must(t, err)
			defer func() { _ = c.Close() }()
			for _, payload := range []string{"short", strings.Repeat("in fragments ", 300)} {
				if got := w.datagram(c, payload); got != "be1 "+payload {
					t.Fatalf("mode %d, %s: %d bytes came back for %d: %.40q", mode, vip, len(got), len(payload), got)
				}
			}
		}
	}
}

// empty removes all entries of a map.
func empty[K, V any](t testing.TB, m *ebpf.Map) {
	t.Helper()
	var keys []K
	var k K
	var v V
	for i := m.Iterate(); i.Next(&k, &v); {
		keys = append(keys, k)
	}
	for _, k := range keys {
		must(t, m.Delete(&k))
	}
}

func TestTunnelWiresFlowsSurvive(t *testing.T) {
	w := newWires(t)
	w.listen()
	for _, vip := range wireVIPs {
		outer := w.nodes["lb1"].at(vip)
		w.serve("lb1", bpfModeMODE_GENEVE, outer, "be1", "be2")
		w.serve("lb2", bpfModeMODE_GENEVE, outer, "be2", "be1") // it knows of a change already
		w.lead("lb1")
		c := w.dial(vip)
		r := bufio.NewReader(c)
		w.name(c, r, "be1")
		// The router sends elsewhere, where nobody has heard of the flow and the row begins
		// with another: second chance.
		w.lead("lb2")
		w.name(c, r, "be1")
		// It knows its flow by its sockets, too.
		be1 := w.nodes["be1"]
		empty[bpfFlowKey, bpfOwned](t, be1.Owned)
		empty[bpfFlowKey, bpfOwned](t, be1.OwnedFresh)
		w.name(c, r, "be1")
		var k bpfFlowKey
		var v bpfOwned
		if !be1.Owned.Iterate().Next(&k, &v) || v.Id != be1.id() {
			t.Fatal("the flow found by its socket is not in owned")
		}
		// The same at the load balancer that had it, whose row has changed since.
		w.lead("lb1")
		w.serve("lb1", bpfModeMODE_GENEVE, outer, "be2", "be1")
		for _, m := range []*ebpf.Map{w.nodes["lb1"].Flows, w.nodes["lb1"].Fresh} {
			empty[bpfFlowKey, bpfFlow](t, m)
		}
		w.name(c, r, "be1")
		c2 := w.dial(vip)
		w.name(c2, bufio.NewReader(c2), "be2")
		w.name(c, r, "be1")
		// Both directions at once, much of it, by way of the wrong machine.
		body := make([]byte, largeBody)
		_, _ = pattern{}.Read(body)
		if got := strings.Fields(string(w.ask(c, r, "/", body))); len(got) != 3 || got[2] != fmt.Sprintf("%x", sha256.Sum256(body)) {
			t.Fatalf("what was sent by way of be2 did not arrive: %v", got)
		}
		if large := w.ask(c, r, "/large", nil); len(large) != largeBody {
			t.Fatalf("%d bytes arrived, want %d", len(large), largeBody)
		}
	}
}

// A connection that nobody has is reset by who is asked in the end, as the VIP.
func TestTunnelWiresResetsFromVIP(t *testing.T) {
	w := newWires(t)
	w.listen()
	w.lead("lb1")
	for _, vip := range wireVIPs {
		w.serve("lb1", bpfModeMODE_GENEVE, vip, "be1", "be2")
		c := w.dial(vip)
		w.name(c, bufio.NewReader(c), "be1")
		// Both forget it: now the flow is nobody's, and its sockets are gone as well.
		for _, n := range []*wired{w.nodes["be1"], w.nodes["be2"]} {
			empty[bpfFlowKey, bpfOwned](t, n.Owned)
			empty[bpfFlowKey, bpfOwned](t, n.OwnedFresh)
			for _, f := range []uint32{1, 3} { // another backend of the machines, without sockets
				key := bpfLocalKey{Id: n.id(), Frontend: f}
				l, _ := get[bpfLocalKey, bpfLocal](n.programRig, n.Locals, key)
				l.Port = bpf.NetworkPort(8081)
				put(n.programRig, n.Locals, key, l)
			}
		}
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: vip\r\n\r\n")
		must(t, err)
		if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
			t.Fatalf("a connection that nobody has: %v, want a reset; %s", err, w.state())
		}
		// Nobody listens there: refused, by the VIP.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := w.client.Dial(ctx, "tcp", netip.AddrPortFrom(vip, 80).String()); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Fatalf("a port that is closed: %v, want it refused", err)
		}
	}
}

func TestTunnelWiresStranger(t *testing.T) {
	w := newWires(t)
	w.listen()
	w.lead("lb1")
	w.serve("lb1", bpfModeMODE_GENEVE, wireVIPs[0], "be1", "be2")
	be1 := w.nodes["be1"]
	for _, vip := range wireVIPs {
		to := be1.at(vip)
		client := w.client.Addr4()
		if vip.Is6() {
			client = w.client.Addr6()
		}
		packet := tcpPacket(t, netip.AddrPortFrom(client, 999), netip.AddrPortFrom(vip, 80), "S", nil, "")
		frame := tunnelled(t, client, to, asked(be1.id()), packet)
		out := families[0]
		if vip.Is6() {
			out = families[1]
		}
		_, _, geneve, _ := outerOffsets(out)
		before := be1.dropped(bpfReasonREASON_NOT_A_TUNNEL)
		c, err := w.client.Dial(t.Context(), "udp", netip.AddrPortFrom(to, genevePort).String())
		must(t, err)
		defer func() { _ = c.Close() }()
		deadline := time.Now().Add(30 * time.Second)
		for be1.dropped(bpfReasonREASON_NOT_A_TUNNEL) == before {
			if time.Now().After(deadline) {
				t.Fatalf("a stranger's tunnel was not dropped; %s", w.state())
			}
			_, _ = c.Write(frame[geneve:])
			time.Sleep(10 * time.Millisecond) // between attempts
		}
		var k bpfFlowKey
		var v bpfOwned
		if be1.OwnedFresh.Iterate().Next(&k, &v) {
			t.Fatalf("a stranger's flow is owned: %+v", k)
		}
	}
}

func TestNATWires(t *testing.T) {
	w := newWires(t)
	w.listen()
	w.lead("lb1")
	for _, forwarding := range []string{"0", "1"} { // by the kernel, and without it
		must(t, inNetns(w.nodes["lb1"].m, func() error { return forwardLoopback(forwarding) }))
		for _, vip := range wireVIPs {
			w.serve("lb1", bpfModeMODE_NAT, vip, "be1", "be2")
			c := w.dial(vip)
			r := bufio.NewReader(c)
			got := strings.Fields(string(w.ask(c, r, "/", []byte("hello"))))
			if len(got) != 3 || got[0] != "be1" || netip.MustParseAddrPort(got[1]).Addr() != w.nodes["lb1"].at(vip) {
				t.Fatalf("%v, want be1, asked by the load balancer", got)
			}
			// Its backend changes for others; its own flow stays.
			w.serve("lb1", bpfModeMODE_NAT, vip, "be2", "be1")
			w.name(c, r, "be1")
			w.transfer(vip)
		}
	}
}

// The load balancer has a server itself: what it encapsulates for it comes out of the
// tunnel at once, like what others send.
func TestTunnelWiresServerHere(t *testing.T) {
	w := newWires(t)
	w.listen("lb1", "be1")
	w.lead("lb1")
	lb := w.nodes["lb1"]
	for i, vip := range wireVIPs {
		w.serve("lb1", bpfModeMODE_GENEVE, vip, "be1", "lb1")
		index := uint32(1 + 2*i)
		slot := index*10 + lb.index
		b, _ := get[uint32, bpfBackend](lb.programRig, lb.Backends, slot)
		b.Flags |= uint8(bpfBackendFlagBACKEND_HERE)
		put(lb.programRig, lb.Backends, slot, b)
		put(lb.programRig, lb.Locals, bpfLocalKey{Id: lb.id(), Frontend: index}, bpfLocal{Address: b.Address, Port: b.Port, Flags: b.Flags})
		be1 := w.nodes["be1"]
		put(lb.programRig, lb.Hops, be1.id(), bpfHop{Remote: wireAddress(be1.at(vip)), NextHop: be1.index})
		put(be1.programRig, be1.Hops, lb.id(), bpfHop{Remote: wireAddress(lb.at(vip)), NextHop: lb.index})
		remote := w.dial(vip)
		w.name(remote, bufio.NewReader(remote), "be1")

		row, _ := get[uint32, uint64](lb.programRig, lb.Rows, index)
		put(lb.programRig, lb.Rows, index, row>>rowBits|(row&(1<<rowBits-1))<<rowBits) // the two change slots
		local := w.dial(vip)
		r := bufio.NewReader(local)
		w.name(local, r, "lb1")
		// Neither is where the row says now, nor known to the flow table.
		put(lb.programRig, lb.Rows, index, row)
		empty[bpfFlowKey, bpfFlow](t, lb.Flows)
		empty[bpfFlowKey, bpfFlow](t, lb.Fresh)
		w.name(local, r, "lb1")
		put(lb.programRig, lb.Rows, index, row>>rowBits|(row&(1<<rowBits-1))<<rowBits)
		empty[bpfFlowKey, bpfFlow](t, lb.Flows)
		empty[bpfFlowKey, bpfFlow](t, lb.Fresh)
		w.name(remote, bufio.NewReader(remote), "be1")
		if large := w.ask(local, r, "/large", nil); len(large) != largeBody {
			t.Fatalf("%d bytes arrived, want %d", len(large), largeBody)
		}
	}
}
