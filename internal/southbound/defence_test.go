package southbound

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"testing"
	"time"

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
