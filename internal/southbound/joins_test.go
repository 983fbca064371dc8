package southbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestTurnsOfJoins holds that made-up tokens of many networks do not keep out a network that had none refused: its
// join waits for its turn, and the others are refused at once.
func TestTurnsOfJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time passes where all wait
		j := newJoins(time.Now)
		network := func(i int) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf("198.51.100.%d/32", i)) }
		const networks = 16 // each with less than its part
		for i := range allBadBurst {
			done, err := j.begin(t.Context(), network(i%networks))
			if err != nil {
				t.Fatalf("join %d: %v", i, err)
			}
			done(true)
		}
		began := time.Now()
		if _, err := j.begin(t.Context(), network(0)); !errors.Is(err, errManyBadJoins) || time.Since(began) != 0 {
			t.Errorf("a network with refusals: %v, after %s", err, time.Since(began))
		}
		done, err := j.begin(t.Context(), network(networks))
		if err != nil {
			t.Fatalf("a network without refusals: %v", err)
		}
		if took := time.Since(began); took == 0 || took > joinTurn {
			t.Errorf("its turn came after %s", took)
		}
		done(false)

		// Nobody waits for ever.
		var dones []func(bool)
		for !j.all.full(time.Now()) { // those under way may all be refused
			done, _, err := j.try(network(networks + 1 + len(dones)))
			if err != nil {
				t.Fatal(err)
			}
			dones = append(dones, done)
		}
		j.all.refusals.SetLimit(0)
		began = time.Now()
		if _, err := j.begin(t.Context(), network(100)); !errors.Is(err, errManyBadJoins) || time.Since(began) != joinTurn {
			t.Errorf("without a turn: %v, after %s", err, time.Since(began))
		}
		for _, done := range dones {
			done(false)
		}
	})
}

// TestEveryRefusalIsPaced holds that a join which is refused counts against its network for whatever reason it was
// refused: each costs a question to the API.
func TestEveryRefusalIsPaced(t *testing.T) {
	key := newKey(t)
	for want, join := range map[codes.Code]func(r *rig) *agentv1.JoinRequest{
		codes.Unauthenticated: func(r *rig) *agentv1.JoinRequest {
			return &agentv1.JoinRequest{Token: r.token("edge-1"), Machine: "edge-2", Csr: request(t, key)}
		},
		codes.InvalidArgument: func(r *rig) *agentv1.JoinRequest {
			return &agentv1.JoinRequest{Token: r.token("edge-1"), Role: "No Role", Csr: request(t, key)}
		},
		codes.AlreadyExists: func(r *rig) *agentv1.JoinRequest {
			r.join("edge-1").observe()
			return &agentv1.JoinRequest{Token: r.token("edge-1"), Csr: request(t, key)}
		},
		codes.FailedPrecondition: func(r *rig) *agentv1.JoinRequest {
			return &agentv1.JoinRequest{Token: r.token("edge-1"), Role: "cache", Csr: request(t, key)}
		},
	} {
		r := newRig(t)
		req := join(r)
		r.tokens.checks.Store(0)
		ctx := peer.NewContext(r.ctx(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 1000}})
		for i := range badJoinsBurst {
			if _, err := r.server.Join(ctx, req); status.Code(err) != want {
				t.Fatalf("%s: join %d: %v", want, i, err)
			}
		}
		_, err := r.server.Join(ctx, req)
		if asked := r.tokens.checks.Load(); status.Code(err) != codes.Unavailable || asked != badJoinsBurst {
			t.Errorf("%s: after %d joins that were refused: %v, and %d questions", want, badJoinsBurst, err, asked)
		}
	}
}
