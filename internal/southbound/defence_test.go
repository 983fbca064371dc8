package southbound

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/descriptorpb"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestSignerIsTold: whoever gets a certificate while authorities change is told of the one that signed it.
func TestSignerIsTold(t *testing.T) {
	r, trust := rotating(t)
	first, next := r.ca, newCA(t, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			trust.Set(first, next)
			trust.Set(next, nil)
			trust.Set(first, nil)
		}
	}()
	csr := request(t, newKey(t))
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		chain, with, err := trust.Sign(csr, Identity{Machine: "edge-1"})
		if err != nil {
			t.Fatal(err)
		}
		_, rest := pem.Decode(chain)
		block, _ := pem.Decode(rest)
		signer, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(with.issuer, pinOf(signer)) || !bytes.Contains(with.Roots, rest) {
			t.Fatal("a certificate comes without the authority that signed it")
		}
	}
}

// TestProofsArePaced: a machine proves a few addresses a second, whatever it calls from.
func TestProofsArePaced(t *testing.T) {
	r := newRig(t)
	a := r.join("edge-1")
	a.observe()
	r.wait("the stream", "edge-1", func(m MachineState) bool { return m.Name != "" })
	r.server.mu.Lock()
	who := caller{Identity: Identity{Machine: "edge-1"}, key: r.server.machines["edge-1"].key}
	r.server.mu.Unlock()
	var refused error
	address := netip.MustParseAddr("10.1.0.1")
	for range 4 * proofBurst {
		if _, err := r.server.proved(who, address); err != nil {
			refused = err
			break
		}
		address = address.Next()
	}
	if status.Code(refused) != codes.ResourceExhausted {
		t.Errorf("%d proofs at once: %v", 4*proofBurst, refused)
	}
}

// TestProofAfterStepDown: what was on its way when the plane stepped down is no proof for its next term.
func TestProofAfterStepDown(t *testing.T) {
	r := newRig(t)
	a := r.join("edge-1")
	a.observe().report(&agentv1.Report{Addresses: []string{"10.0.0.9"}})
	r.wait("the report", "edge-1", func(m MachineState) bool { return len(m.Addresses) == 1 })
	r.leader.set(1, false, "")
	r.server.StepDown()
	r.server.mu.Lock()
	concerned := r.server.prove(r.server.machines["edge-1"], netip.MustParseAddr("10.0.0.9"))
	r.server.mu.Unlock()
	r.leader.set(2, true, "")
	if provers := r.server.Provers(netip.MustParseAddr("10.0.0.9")); len(concerned)+len(provers) != 0 {
		t.Errorf("proven by %v, which concerns %v", provers, concerned)
	}
}

// TestProofsOfLostMachines: they end though nobody reports any more.
func TestProofsOfLostMachines(t *testing.T) {
	r := newRig(t)
	r.callFrom("10.0.0.1")
	a := r.join("edge-1")
	a.observe().report(&agentv1.Report{Addresses: []string{"10.0.0.1"}})
	r.wait("the proof", "edge-1", func(m MachineState) bool { return len(m.Proven) == 1 && len(m.Addresses) == 1 })
	_ = a.conn.Close()
	r.wait("the end of its streams", "edge-1", func(m MachineState) bool { return !m.Connected })
	r.publish(1, 1, Update{Placement: place("edge-1", "edges")}) // who has a place is not forgotten
	r.clock.advance(proofKept + time.Minute)
	r.server.Sweep()
	if state, _ := r.server.Machine("edge-1"); len(state.Proven) != 0 {
		t.Errorf("a machine that is lost has proven %v", state.Proven)
	}
}

// TestConnectionEndsWithItsCertificate: also one on which nothing happens.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	r := newRig(t)
	a := r.join("edge-1")
	r.clock.advance(MachineLife - 2*time.Second)
	conn := r.dial(a.cert)
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(r.ctx(), state) {
			t.Fatalf("the connection is %s", state)
		}
	}
	if !conn.WaitForStateChange(r.ctx(), connectivity.Ready) {
		t.Error("the connection outlives its certificate")
	}
}

// TestPackedNumbersAreWeighed: a byte of the message is eight in memory.
func TestPackedNumbersAreWeighed(t *testing.T) {
	wire := protowire.AppendBytes(protowire.AppendTag(nil, 10, protowire.BytesType), make([]byte, maxDecoded/8+1))
	if err := decode(wire, &descriptorpb.FileDescriptorProto{}); !errors.Is(err, errLarge) {
		t.Errorf("%d numbers: %v", maxDecoded/8+1, err)
	}
}

// TestCallsOfAConnectionAreFew: also those of a client that ignores the plane's settings. A call whose message does not
// end holds a goroutine and what came of the message.
func TestCallsOfAConnectionAreFew(t *testing.T) {
	r := newRig(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.ca.Roots())
	raw, err := r.listener.DialContext(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: agentv1.ServerName, Time: r.clock.Now, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	var head bytes.Buffer
	pack := hpack.NewEncoder(&head)
	call := func(id uint32) error {
		head.Reset()
		for _, h := range [][2]string{
			{":method", "POST"},
			{":scheme", "https"},
			{":path", agentv1.Enrollment_Join_FullMethodName},
			{":authority", "plane"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
		} {
			if err := pack.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
				return err
			}
		}
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true})
	}
	err = f.WriteSettings()
	for i := range uint32(maxStreams + 1) {
		err = errors.Join(err, call(2*i+1))
	}
	if err = errors.Join(err, f.WritePing(false, [8]byte{})); err != nil {
		t.Fatal(err)
	}
	refused := map[uint32]http2.ErrCode{}
	for answered := false; !answered; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			refused[frame.StreamID] = frame.ErrCode
		case *http2.PingFrame: // it has seen all that came before
			answered = frame.IsAck()
		}
	}
	if want := map[uint32]http2.ErrCode{2*maxStreams + 1: http2.ErrCodeRefusedStream}; !maps.Equal(refused, want) {
		t.Errorf("of %d calls at once these are refused: %v", maxStreams+1, refused)
	}
}
