package southbound

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// accounts take "node:NAME" for the token of a pod on that node.
type accounts struct{}

func (accounts) Review(_ context.Context, token string) (Identity, error) {
	node, ok := strings.CutPrefix(token, "node:")
	switch {
	case token == "away":
		return Identity{}, fmt.Errorf("%w: connection refused", ErrAway)
	case !ok:
		return Identity{}, fmt.Errorf("%w: the API does not know it", ErrToken)
	}
	return Identity{Machine: node}, nil
}

func TestPodsJoin(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Accounts = accounts{} })
	key := newKey(t)
	join := func(req *agentv1.JoinRequest) (*agentv1.Certificate, error) {
		req.Csr = request(t, key)
		return agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), req)
	}
	for range 2 {
		issued, err := join(&agentv1.JoinRequest{ServiceAccountToken: "node:node-1", Machine: "node-1"})
		if err != nil {
			t.Fatalf("a pod may join as often as it must: %v", err)
		}
		if issued.GetMachine() != "node-1" {
			t.Errorf("joined as %q", issued.GetMachine())
		}
	}
	for name, c := range map[string]struct {
		req  *agentv1.JoinRequest
		code codes.Code
		text string
	}{
		"another node": {&agentv1.JoinRequest{ServiceAccountToken: "node:node-1", Machine: "node-2"}, codes.Unauthenticated, "can join only under that name"},
		"unknown":      {&agentv1.JoinRequest{ServiceAccountToken: "forged"}, codes.Unauthenticated, "the API does not know it"},
		"API away":     {&agentv1.JoinRequest{ServiceAccountToken: "away"}, codes.Unavailable, "cannot read the token from its API"},
		"two tokens":   {&agentv1.JoinRequest{ServiceAccountToken: "node:node-1", Token: r.token("node-1")}, codes.Unauthenticated, "want either a join token"},
		"bad name":     {&agentv1.JoinRequest{ServiceAccountToken: "node:Node_1"}, codes.InvalidArgument, "invalid name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := join(c.req)
			wantStatus(t, err, c.code, c.text)
		})
	}
	r.leader.set(1, false, "192.0.2.1:7443")
	_, err := join(&agentv1.JoinRequest{ServiceAccountToken: "node:node-1"})
	wantStatus(t, err, codes.Unavailable, "the leader is at 192.0.2.1:7443")
}

func TestPodTakesNoLiveName(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Accounts = accounts{} })
	o := r.join("node-1").observe()
	join := func() error {
		_, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{ServiceAccountToken: "node:node-1", Csr: request(t, newKey(t))})
		return err
	}
	wantStatus(t, join(), codes.AlreadyExists, "node-1 is alive")
	o.cancel()
	r.wait("the end of the stream", "node-1", func(MachineState) bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return !r.server.machines["node-1"].open()
	})
	r.clock.advance(time.Minute)
	if err := join(); err != nil {
		t.Fatalf("its machine is gone: %v", err)
	}
}

func TestNoPodJoinsUnlessNamed(t *testing.T) {
	r := newRig(t)
	_, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{ServiceAccountToken: "node:node-1", Csr: request(t, newKey(t))})
	wantStatus(t, err, codes.Unauthenticated, "--agent-service-account")
}
