package southbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// Successor is a plane that took the Lease of another one.
type Successor struct {
	Epoch             uint64
	Address           string // host:port of its agent endpoint
	Identity, Console string
}

// ErrKeepsOn is the reason why a plane does not follow a successor: it renews its Lease, or leads in a
// larger epoch.
var ErrKeepsOn = errors.New("this plane leads")

// Follow implements agentv1.SuccessionServer, for planes of this authority.
func (s *Server) Follow(ctx context.Context, r *agentv1.FollowRequest) (*agentv1.FollowResponse, error) {
	if err := s.verifier.plane(ctx); err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	if s.config.Succeeded == nil {
		return nil, status.Error(codes.Unimplemented, "this plane follows no leader")
	}
	if err := s.config.Succeeded(Successor{r.GetEpoch(), r.GetAddress(), r.GetIdentity(), r.GetConsole()}); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &agentv1.FollowResponse{}, nil
}

// plane returns nil if a plane of this authority makes a call: it shows what it serves with. No machine's certificate
// is good for that, and this one for nothing that machines do.
func (v verifier) plane(ctx context.Context) error {
	var shown []*x509.Certificate
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			shown = info.State.PeerCertificates
		}
	}
	if len(shown) == 0 {
		return errors.New("no client certificate: only a plane may announce a new leader")
	}
	return OfPlane(shown[0], v.trust(), v.now())
}

// OfPlane returns nil if a certificate is what a plane of this authority serves with.
func OfPlane(shown *x509.Certificate, trust Trust, now time.Time) error {
	_, err := shown.Verify(x509.VerifyOptions{
		Roots: trust.Pool, CurrentTime: now, DNSName: agentv1.ServerName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("the client certificate is not a plane certificate: %w", err)
	}
	return nil
}

// AsPlane is how a plane connects to another one: it shows what it serves with.
func AsPlane(authority Authority, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: agentv1.ServerName, RootCAs: authority.Trust().Pool, Time: now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return authority.Serving() },
	}
}

// Succeed tells the plane at an address that this plane leads. It returns ErrKeepsOn if
// that plane leads itself.
func Succeed(ctx context.Context, address string, authority Authority, now func() time.Time, by Successor) error {
	config := AsPlane(authority, now)
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithNoProxy())
	if err != nil {
		return fmt.Errorf("announce the new leader to the plane at %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }()
	_, err = agentv1.NewSuccessionClient(conn).Follow(ctx, &agentv1.FollowRequest{
		Epoch: by.Epoch, Address: by.Address, Identity: by.Identity, Console: by.Console,
	})
	if status.Code(err) == codes.FailedPrecondition {
		err = fmt.Errorf("%w: %w", ErrKeepsOn, err)
	}
	if err != nil {
		return fmt.Errorf("announce the new leader to the plane at %s: %w", address, err)
	}
	return nil
}
