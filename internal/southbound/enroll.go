package southbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// Join spends a token for a certificate, or gives one to a pod. A token that fails
// because its machine is alive with another key, or because the caller goes by another
// name or was started for another role, is not spent. Networks with many joins that are refused are held up.
func (s *Server) Join(ctx context.Context, req *agentv1.JoinRequest) (*agentv1.Certificate, error) {
	if _, leads := s.config.Leader.Leading(); !leads {
		return nil, s.standby()
	}
	done, err := s.joins.begin(ctx, networkFrom(callsFrom(ctx)))
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error()) // which agents try again, whatever their version
	}
	cert, err := s.join(ctx, req)
	switch status.Code(err) {
	case codes.Unauthenticated, codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition:
		done(true)
	default:
		done(false) // it succeeded, or is not the caller's fault
	}
	return cert, err
}

func (s *Server) join(ctx context.Context, req *agentv1.JoinRequest) (*agentv1.Certificate, error) {
	if req.GetServiceAccountToken() != "" {
		return s.joinPod(ctx, req)
	}
	token, err := ParseToken(req.GetToken())
	if err != nil {
		return nil, s.refuse("", err)
	}
	request, err := parseRequest(req.GetCsr())
	if err != nil {
		return nil, s.refuse("", err)
	}
	key := keyID(request.RawSubjectPublicKeyInfo)
	id, err := s.config.Tokens.Check(ctx, token, key)
	if err != nil {
		return nil, s.refuse(token.ID, err)
	}
	if name := req.GetMachine(); name != "" && name != id.Machine {
		return nil, s.refuse(token.ID, fmt.Errorf("%w: it is for machine %s, not for %q", ErrToken, id.Machine, name))
	}
	if err := fits(id, req.GetRole()); err != nil {
		return nil, s.refuse(token.ID, err)
	}
	if err := s.free(id.Machine, key); err != nil {
		s.config.Log.Warn("join refused", "token", token.ID, "machine", id.Machine, "reason", err)
		return nil, err
	}
	if id, err = s.config.Tokens.Spend(ctx, token, key); err != nil {
		return nil, s.refuse(token.ID, err)
	}
	cert, _, err := s.certify(req.GetCsr(), id)
	if err != nil {
		return nil, s.refuse(token.ID, err)
	}
	s.config.Log.Info("machine joined", "machine", id.Machine, "role", id.Role, "token", token.ID)
	return cert, nil
}

// errRole is the class of joins for another role than the token's.
var errRole = errors.New("token refused")

// fits says why a token is not for an agent that was started for a role; one that says none takes any.
func fits(id Identity, wants string) error {
	role := cmp.Or(id.Role, agentv1.RoleEdge)
	if wants == "" || wants == role {
		return nil
	}
	if err := (Identity{Machine: id.Machine, Role: wants}).Validate(); err != nil {
		return err // what is no role is repeated to nobody as one
	}
	return fmt.Errorf("%w: the token is for a machine of role %s, and this agent was started with --role %s: start it with --role %s, or with a token of `fairlead token create --machine %s --role %s`",
		errRole, role, wants, role, id.Machine, wants)
}

// joinPod gives a certificate to the agent in a pod whose token the cluster vouches for.
func (s *Server) joinPod(ctx context.Context, req *agentv1.JoinRequest) (*agentv1.Certificate, error) {
	const shown = "of a service account" // in the log, where an ID of other tokens stands
	if req.GetToken() != "" {
		return nil, s.refuse(shown, fmt.Errorf("%w: want either a join token or a service account's token, not both", ErrToken))
	}
	if s.config.Accounts == nil {
		return nil, s.refuse(shown, fmt.Errorf("%w: this plane accepts no service accounts (--agent-service-account names one to accept)", ErrToken))
	}
	request, err := parseRequest(req.GetCsr())
	if err != nil {
		return nil, s.refuse(shown, err)
	}
	id, err := s.config.Accounts.Review(ctx, req.GetServiceAccountToken())
	if err != nil {
		return nil, s.refuse(shown, err)
	}
	if name := req.GetMachine(); name != "" && name != id.Machine {
		return nil, s.refuse(shown, fmt.Errorf("%w: its pod runs on node %s and can join only under that name, not as %q", ErrToken, id.Machine, name))
	}
	if err := s.free(id.Machine, keyID(request.RawSubjectPublicKeyInfo)); err != nil {
		s.config.Log.Warn("join refused", "token", shown, "machine", id.Machine, "reason", err)
		return nil, err
	}
	cert, _, err := s.certify(req.GetCsr(), id)
	if err != nil {
		return nil, s.refuse(shown, err)
	}
	s.config.Log.Info("machine joined", "machine", id.Machine, "role", id.Role, "token", shown)
	return cert, nil
}

// Renew gives the caller a new certificate. Its key may be a new one; the machine
// may use it while streams with the old one are open.
func (s *Server) Renew(ctx context.Context, req *agentv1.RenewRequest) (*agentv1.Certificate, error) {
	c, err := s.verifier.caller(ctx)
	if err != nil {
		return nil, err
	}
	if _, leads := s.config.Leader.Leading(); !leads {
		return nil, s.standby()
	}
	request, err := parseRequest(req.GetCsr())
	if err != nil {
		return nil, s.refuse("", err)
	}
	if s.taken(c.Machine, c.key) {
		return nil, status.Errorf(codes.AlreadyExists, "machine %s is connected with another key", c.Machine)
	}
	cert, with, err := s.certify(req.GetCsr(), c.Identity)
	if err != nil {
		return nil, s.refuse("", err)
	}
	s.mu.Lock()
	if m := s.machines[c.Machine]; m != nil {
		m.nextKey, m.got, m.renewed = keyID(request.RawSubjectPublicKeyInfo), with.issuer, s.config.Now()
	}
	s.mu.Unlock()
	return cert, nil
}

func (s *Server) certify(csr []byte, id Identity) (*agentv1.Certificate, Trust, error) {
	chain, with, err := s.config.Authority.Sign(csr, id)
	if err != nil {
		return nil, with, err
	}
	return &agentv1.Certificate{Chain: chain, Authorities: with.Roots, Machine: id.Machine}, with, nil
}

// free refuses the name of a machine that is alive with another key, or may be: no machine has a stream in
// the first moments of a leadership.
func (s *Server) free(name string, key KeyID) error {
	if !s.taken(name, key) {
		if s.comesBack(name, key) {
			return status.Errorf(codes.Unavailable, "this plane has just become the leader, and machine %s with another key may still reconnect within %s: try again after that", name, s.returnTime())
		}
		return nil
	}
	return status.Errorf(codes.AlreadyExists, "machine %s is alive; stop its agent first, or join under another name", name)
}

// taken says whether a machine of that name is alive with another key.
func (s *Server) taken(name string, key KeyID) bool {
	now := s.config.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[name]
	return m != nil && m.alive(now, s.config.TTL) && m.key != key && m.nextKey != key
}

// returnTime is how long machines have to open their streams to a plane that begins to lead.
func (s *Server) returnTime() time.Duration { return 2 * s.config.TTL }

// comesBack says whether a machine that has another key may be alive without a stream, since this plane has
// just begun to lead.
func (s *Server) comesBack(name string, key KeyID) bool {
	if s.config.Joined == nil || !s.config.Joined(name, key) {
		return false
	}
	now := s.config.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.begun(now).Add(s.returnTime()))
}

// refuse turns an error of an enrollment into what the caller is told. Only its own
// faults are told in words.
func (s *Server) refuse(token string, err error) error {
	code, text := codes.Internal, "the plane could not sign; see its log"
	switch {
	case errors.Is(err, ErrToken):
		code, text = codes.Unauthenticated, err.Error()
	case errors.Is(err, errRole):
		code, text = codes.FailedPrecondition, err.Error()
	case errors.Is(err, ErrRequest), errors.Is(err, ErrName):
		code, text = codes.InvalidArgument, err.Error()
	case errors.Is(err, ErrAway):
		code, text = codes.Unavailable, "the plane cannot read the token from its API now; see its log"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code, text = codes.Unavailable, "the plane did not answer in time"
	}
	s.config.Log.Warn("join refused", "token", token, "reason", err)
	return status.Error(code, text)
}
