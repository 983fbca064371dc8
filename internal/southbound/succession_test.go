package southbound

import (
	"crypto/tls"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestOnlyPlanesTellWhoLeads: neither strangers nor machines nor planes of another authority end a leadership.
func TestOnlyPlanesTellWhoLeads(t *testing.T) {
	var told []Successor
	var answer error
	r := newRig(t, func(c *Config) {
		c.Succeeded = func(by Successor) error {
			told = append(told, by)
			return answer
		}
	})
	other, err := NewCA(r.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	serving := func(ca *CA) *tls.Certificate {
		c, err := ca.Serving()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	follow := func(cert *tls.Certificate) error {
		_, err := agentv1.NewSuccessionClient(r.dial(cert)).Follow(r.ctx(), &agentv1.FollowRequest{Epoch: 7, Address: "b:7443", Identity: "b", Console: "b:7080"})
		return err
	}
	for who, cert := range map[string]*tls.Certificate{
		"a stranger": nil, "a machine": r.join("edge-1").cert, "an impostor": r.impostor("edge-1").cert, "another authority's plane": serving(other),
	} {
		if err := follow(cert); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s got %v", who, err)
		}
	}
	if len(told) > 0 {
		t.Errorf("they were believed: %v", told)
	}
	if err := follow(serving(r.ca)); err != nil {
		t.Error(err)
	}
	if want := (Successor{7, "b:7443", "b", "b:7080"}); len(told) != 1 || told[0] != want {
		t.Errorf("told %v, want %v", told, want)
	}
	answer = fmt.Errorf("%w on", ErrKeepsOn)
	if err := follow(serving(r.ca)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a plane that keeps on answered %v", err)
	}
}
