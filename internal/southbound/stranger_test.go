package southbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // as the program has it: libraries bring it along
	"google.golang.org/protobuf/proto"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (bytesCodec) Unmarshal(_ []byte, _ any) error { return nil }
func (bytesCodec) Name() string                    { return "proto" }

// TestNothingIsUnpacked holds that compressed messages are refused before they are unpacked: 8 KiB can be 8 MiB, and
// what a stranger may send counts packed bytes.
func TestNothingIsUnpacked(t *testing.T) {
	r := newRig(t)
	join, err := proto.Marshal(&agentv1.JoinRequest{Token: r.token("edge-1"), Csr: request(t, newKey(t))})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(who string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), agentv1.ErrCompressed.Error()) {
			t.Errorf("%s: %v", who, err)
		}
	}
	call := func(conn *grpc.ClientConn, method string, body []byte, o ...grpc.CallOption) error {
		return conn.Invoke(r.ctx(), method, body, &[]byte{}, append(o, grpc.ForceCodec(bytesCodec{}))...)
	}
	packed := grpc.UseCompressor("gzip")
	refused("a stranger", call(r.dial(nil), agentv1.Enrollment_Join_FullMethodName, join, packed))
	if err := call(r.dial(nil), agentv1.Enrollment_Join_FullMethodName, join); err != nil {
		t.Errorf("the same as it is: %v", err)
	}
	a := r.join("edge-2")
	refused("a machine's call", call(r.dial(a.cert), agentv1.Enrollment_Renew_FullMethodName, join, packed))
	stream, err := agentv1.NewObserverClient(r.dial(a.cert)).Observe(r.ctx(), packed)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&agentv1.Report{AgentVersion: "packed"}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	refused("a machine's stream", err)
}

// TestStrangersMakeRoom holds that connections without a certificate from one network keep out nobody who comes from
// another: not a machine that is to join, nor one whose certificate has expired.
func TestStrangersMakeRoom(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxStrangers = 8 })
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.ca.Roots())
	silent := func(from string) (*tls.Conn, error) {
		r.from.Store(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)))
		raw, err := r.listener.DialContext(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		c := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: agentv1.ServerName, Time: r.clock.Now, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
			return c, err
		}
		_, err = io.ReadFull(c, make([]byte, 9)) // the server's settings
		return c, err
	}
	for range 8 {
		if _, err := silent("[2001:db8::1]:1000"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := silent("[2001:db8::2]:1000"); err == nil {
		t.Error("a ninth of the same network came in")
	}
	other, err := silent("192.0.2.7:1000")
	if err != nil {
		t.Fatalf("another network is kept out: %v", err)
	}
	r.from.Store(net.TCPAddrFromAddrPort(netip.MustParseAddrPort("198.51.100.7:1000")))
	if _, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: r.token("edge-1"), Csr: request(t, newKey(t))}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("a machine is kept out: %v", err)
	}
	// Of those that were there, the many made room, and not the one.
	if _, err := other.Write([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x00abcdefgh")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(other, make([]byte, 9+17)); err != nil { // the answer to the settings and to the ping
		t.Errorf("the only one of its network went: %v", err)
	}
}

// TestBytesOfMachinesArePaced holds that what a machine sends is read at a pace, whatever it is: of what nobody knows
// nothing is left to be weighed once it is decoded.
func TestBytesOfMachinesArePaced(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	g := &guardedConn{Conn: here, machine: "edge-1", leave: func() {}, bytes: rate.NewLimiter(rate.Every(time.Hour), 1000)}
	g.open, g.shut = context.WithCancel(t.Context())
	go func() {
		for {
			if _, err := there.Write(make([]byte, 250)); err != nil {
				return
			}
		}
	}()
	for range 4 {
		if _, err := g.Read(make([]byte, 250)); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error)
	go func() {
		_, err := g.Read(make([]byte, 250))
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("more was read: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	_ = g.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the end of the connection: %v", err)
	}

	// The pace is the machine's: another connection has none of its own.
	d := newAdmission(nil, verifier{now: time.Now}, 1, 10, time.Minute)
	one, two := &guardedConn{machine: "edge-1"}, &guardedConn{machine: "edge-1"}
	if err := errors.Join(d.enter(one), d.enter(two)); err != nil || one.bytes == nil || one.bytes != two.bytes {
		t.Fatalf("two paces, or none: %v", err)
	}
	d.exit(one)
	d.exit(two)
	again := &guardedConn{machine: "edge-1"}
	if err := d.enter(again); err != nil || again.bytes != one.bytes {
		t.Errorf("a machine that comes back has a pace of its own: %v", err)
	}
	d.exit(again)
	if d.forget("edge-1"); len(d.bytes) > 0 {
		t.Error("it is held on to")
	}
}
