package plane

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// authorityAnnotation of a Machine is the pin of the authority of which it keeps a certificate, as
// a plane saw it during a rotation. Where it is missing, that is the one by which planes are known.
const authorityAnnotation = "fairlead.dev/authority"

// registry knows which keys are good, and the streams that use them. It stands in
// front of the machines' server, which checks the certificates themselves.
type registry struct {
	client client.Client
	log    *slog.Logger
	leader southbound.Leader
	trust  southbound.Authority // the agents' authorities
	now    func() time.Time

	mu    sync.Mutex
	ready bool // the Machines of the API are known
	keys  map[string]admission
	// how many Machines have an address
	addresses map[netip.Addr]int
	// deletions counts the Machines that were seen to go: what was read of the API
	// before may be of one that is gone. One count for all names does not grow.
	deletions uint64
	streams   map[string]map[*admitted]bool
	renewals  map[string]*rate.Limiter // of Machines that have renewed
	lookups   map[string]*rate.Limiter // of names whose key was not known
}

// How often a machine may renew its certificate: an agent does so once in days, and when authorities take turns.
// Each new key is written to the API.
const (
	renewEvery = 10 * time.Second
	renewBurst = 10
)

// How often the API is asked for a machine whose certificate is good and whose key is not known: the watch is behind
// for a moment, and a machine that was deleted may call for days.
const (
	lookupEvery = 10 * time.Second
	lookupBurst = 10
	// maxLookups is of how many such names is known when they were looked up: those of a while ago are let go then.
	maxLookups = 4096
)

// counts says whether a machine's key is one of those that its Machine lists, as far as is known now.
func (r *registry) counts(name string, key southbound.KeyID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ready || slices.Contains(r.keys[name].keys, string(key))
}

// another says whether a Machine lists keys, and not this one, as far as is known now.
func (r *registry) another(name string, key southbound.KeyID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.keys[name].keys
	return len(keys) > 0 && !slices.Contains(keys, string(key))
}

// mayRenew says whether a machine may renew its certificate now.
func (r *registry) mayRenew(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewals[name] == nil {
		r.renewals[name] = rate.NewLimiter(rate.Every(renewEvery), renewBurst)
	}
	return r.renewals[name].Allow()
}

// mayLookUp says whether the API may be asked now for a machine whose key is not known.
func (r *registry) mayLookUp(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lookups) >= maxLookups {
		maps.DeleteFunc(r.lookups, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= lookupBurst })
	}
	if r.lookups[name] == nil {
		r.lookups[name] = rate.NewLimiter(rate.Every(lookupEvery), lookupBurst)
	}
	return r.lookups[name].Allow()
}

// admission is what the API says of one machine's keys, as of a version.
type admission struct {
	keys      []string
	authority string // authorityAnnotation
	version   uint64
	addresses []netip.Addr // that are the machine's
}

// admitted is one open stream.
type admitted struct {
	key string
	end context.CancelCauseFunc
}

func newRegistry(c client.Client, l southbound.Leader, trust southbound.Authority, now func() time.Time, log *slog.Logger) *registry {
	return &registry{client: c, leader: l, trust: trust, now: now, log: log, keys: map[string]admission{}, addresses: map[netip.Addr]int{}, streams: map[string]map[*admitted]bool{}, renewals: map[string]*rate.Limiter{}, lookups: map[string]*rate.Limiter{}}
}

// know says that every Machine of the API has been set.
func (r *registry) know() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = true
}

// set replaces what the API says of a Machine, nil when it is gone, and ends the
// streams that are no longer good.
func (r *registry) set(name string, m *v1alpha1.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replace(name, m)
}

// setUnless is set for a Machine that was read when so many had been deleted. It does
// nothing and returns false when one has been deleted since.
func (r *registry) setUnless(deletions uint64, name string, m *v1alpha1.Machine) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deletions != deletions {
		return false
	}
	r.replace(name, m)
	return true
}

func (r *registry) deleted() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deletions
}

// replace is set; the caller holds the lock.
func (r *registry) replace(name string, m *v1alpha1.Machine) {
	if m == nil {
		r.have(r.keys[name].addresses, -1)
		delete(r.keys, name)
		delete(r.renewals, name)
		r.deletions++
	} else {
		version, err := strconv.ParseUint(m.ResourceVersion, 10, 64)
		if err == nil && version < r.keys[name].version {
			return // the watch is behind what admit wrote
		}
		r.have(r.keys[name].addresses, -1)
		r.keys[name] = admission{keysOf(m), m.Annotations[authorityAnnotation], version, ownAddresses(m)}
		r.have(r.keys[name].addresses, 1)
	}
	for s := range r.streams[name] {
		if !slices.Contains(r.keys[name].keys, s.key) {
			r.log.Info("a stream ends: its certificate was revoked", "machine", name)
			s.end(revoked(name, m != nil, r.keys[name].keys))
		}
	}
}

// have counts the Machines that have addresses. The lock is held.
func (r *registry) have(addresses []netip.Addr, by int) {
	for _, a := range addresses {
		if r.addresses[a] += by; r.addresses[a] == 0 {
			delete(r.addresses, a)
		}
	}
}

// ownAddresses are those that are a machine's: it has connected from them, or an operator names them.
func ownAddresses(m *v1alpha1.Machine) []netip.Addr {
	var list []netip.Addr
	for _, text := range slices.Concat(m.Spec.Addresses, m.Status.Addresses) {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a.Unmap())
		}
	}
	return list
}

// expects says whether a machine may call from an address, as far as is known now.
func (r *registry) expects(address netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addresses[address] > 0
}

// revoked is why a key is not good: there is no Machine, or it lists these keys.
func revoked(name string, exists bool, keys []string) error {
	why := fmt.Sprintf("machine %s is not known here: it was deleted or never joined", name)
	switch {
	case !exists:
	case len(keys) == 0:
		why = fmt.Sprintf("machine %s lists no key: it was made or replaced by hand, without its annotation %s", name, KeysAnnotation)
	default:
		why = fmt.Sprintf("machine %s goes by another key now: it joined anew or renewed its certificate, or its annotation %s was changed", name, KeysAnnotation)
	}
	return status.Errorf(codes.Unauthenticated, "%s; join again with a new token (fairlead token create --machine %s, and --role backend for one with backends only)", why, name)
}

// check says whether a client may use the key of the certificate that it showed. It is
// not known when the certificate is not our authority's; the server then refuses the
// client and says why.
func (r *registry) check(ctx context.Context, leaf *x509.Certificate) (known bool, _ error) {
	if _, leads := r.leader.Leading(); !leads {
		return false, r.standby()
	}
	name, key := nameOf(leaf), keyOf(leaf)
	r.mu.Lock()
	ready, good := r.ready, slices.Contains(r.keys[name].keys, key)
	r.mu.Unlock()
	switch {
	case !ready:
		return false, status.Error(codes.Unavailable, "this plane has just begun and does not know its machines yet")
	case good:
		return true, nil
	}
	// The watch may be behind: whoever our authority has vouched for is looked up.
	options := x509.VerifyOptions{Roots: r.trust.Trust().Pool, CurrentTime: r.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := leaf.Verify(options); err != nil {
		return false, nil
	}
	if !r.mayLookUp(name) {
		return false, status.Errorf(codes.Unavailable, "machine %s is not known here, and was looked up %d times just now: once in %s", name, lookupBurst, lookupEvery)
	}
	for {
		deletions := r.deleted()
		m := &v1alpha1.Machine{}
		switch err := r.client.Get(ctx, client.ObjectKey{Name: name}, m); {
		case apierrors.IsNotFound(err):
			return false, revoked(name, false, nil)
		case err != nil:
			r.log.Warn("a machine cannot be looked up", "machine", name, "error", err)
			return false, status.Errorf(codes.Unavailable, "machine %s is not known here, and the API does not say whether it exists", name)
		case !slices.Contains(keysOf(m), key):
			return false, revoked(name, true, keysOf(m))
		}
		if r.setUnless(deletions, name, m) {
			return true, nil
		}
	}
}

// standby is the answer of a plane that does not lead.
func (r *registry) standby() error {
	address := r.leader.Address()
	text := "this plane does not lead, and no leader is known"
	if address != "" {
		text = "this plane does not lead; the leader is at " + address
	}
	st := status.New(codes.Unavailable, text)
	if detailed, err := st.WithDetails(&agentv1.LeaderHint{Address: address}); err == nil {
		st = detailed
	}
	return st.Err()
}

// admit writes down that a machine has a new key, before the machine gets the
// certificate. A machine that joins has no key yet that it comes from: its new one is
// its only one, and the Machine is made when there is none, with the role of the token.
// Otherwise the key that it comes from must be good still, and stays good: the machine
// may never learn of the new one.
func (r *registry) admit(ctx context.Context, name, key, from, role string) error {
	for {
		deletions := r.deleted()
		m := &v1alpha1.Machine{}
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, m)
		gone := apierrors.IsNotFound(err)
		keys := keysOf(m)
		switch {
		case gone && from == "":
			m = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{KeysAnnotation: key}}}
			if role == RoleBackend {
				m.Spec.Role = v1alpha1.RoleBackend // before it is sent anything
			}
			err = r.client.Create(ctx, m)
		case gone:
			return revoked(name, false, nil)
		case err != nil:
		case from != "" && !slices.Contains(keys, from):
			return revoked(name, true, keys) // just now
		case slices.Contains(keys, key) && (from != "" || len(keys) == 1):
		default:
			keys = []string{key}
			if from != "" {
				keys = append(keys, from)
			}
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			m.Annotations[KeysAnnotation] = strings.Join(keys, ",")
			err = r.client.Update(ctx, m)
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("write down the key of machine %s: %w", name, err)
		}
		r.setUnless(deletions, name, m) // else the watch brings it, or who asks looks it up
		return nil
	}
}

// unary guards Renew, and records the keys of Join and Renew.
func (r *registry) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if _, following := req.(*agentv1.FollowRequest); following {
		return handler(ctx, req) // of a plane, which the server knows
	}
	join, joining := req.(*agentv1.JoinRequest)
	var token southbound.Token
	var again bool // the token led to a Machine before
	var pod bool   // it joins with another's token, which is good as often as it is shown
	var from string
	if joining {
		if _, leads := r.leader.Leading(); !leads {
			return nil, r.standby()
		}
		if pod = join.GetServiceAccountToken() != ""; !pod {
			var err error
			if token, err = southbound.ParseToken(join.GetToken()); err != nil {
				return handler(ctx, req) // which refuses it
			}
		}
	} else if leaf := shownBy(ctx); leaf != nil {
		known, err := r.check(ctx, leaf)
		if err != nil {
			return nil, err
		}
		// Whoever shows a certificate of another authority writes into it what they like: the server refuses them.
		if _, renewing := req.(*agentv1.RenewRequest); renewing && known && !r.mayRenew(nameOf(leaf)) {
			return nil, status.Errorf(codes.ResourceExhausted, "machine %s has renewed its certificate %d times just now: once in %s", nameOf(leaf), renewBurst, renewEvery)
		}
		from = keyOf(leaf)
	}
	resp, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	issued, ok := resp.(*agentv1.Certificate)
	if !ok {
		return resp, nil
	}
	leaf, err := leafOf(issued.GetChain())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if joining && !pod { // only now: a token that somebody made up costs one question, which the server paces
		if again, err = (tokens{r.client, r.now}).joined(ctx, token.ID); err != nil {
			r.log.Error("a token cannot be looked up", "token", token.ID, "error", err)
			return nil, status.Error(codes.Unavailable, "the plane could not look up the token; try again")
		}
	}
	switch {
	case again:
		from = keyOf(leaf) // the Machine must have it still
	case !joining && from == "":
		return nil, status.Error(codes.Internal, "a bug: a certificate was renewed for nobody") // the server refuses it before
	}
	err = r.admit(ctx, issued.GetMachine(), keyOf(leaf), from, southbound.RoleOf(leaf))
	if err == nil && joining && !again && !pod {
		err = tokens{r.client, r.now}.join(ctx, token.ID)
	}
	switch {
	case status.Code(err) == codes.Unauthenticated:
		return nil, err
	case err != nil:
		r.log.Error("a certificate was not given out", "machine", issued.GetMachine(), "error", err)
		return nil, status.Error(codes.Unavailable, "the plane could not write down the new key; try again")
	}
	return resp, nil
}

// stream guards the streams, and ends them when their machine goes.
func (r *registry) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	leaf := shownBy(ss.Context())
	if leaf == nil {
		return handler(srv, ss) // the server refuses it
	}
	if known, err := r.check(ss.Context(), leaf); err != nil {
		return err
	} else if !known {
		return handler(srv, ss)
	}
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	name, key := nameOf(leaf), keyOf(leaf)
	a := &admitted{key: key, end: end}
	r.mu.Lock()
	if now, exists := r.keys[name]; !slices.Contains(now.keys, key) {
		r.mu.Unlock()
		return revoked(name, exists, now.keys) // just now
	}
	if r.streams[name] == nil {
		r.streams[name] = map[*admitted]bool{}
	}
	r.streams[name][a] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.streams[name], a)
		if len(r.streams[name]) == 0 {
			delete(r.streams, name)
		}
	}()
	return handler(srv, guardedStream{ss, ctx})
}

type guardedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s guardedStream) Context() context.Context { return s.ctx }

// shownBy is the certificate that a client showed, or nil. That the client has its key
// is proven; whether our authority signed it is for the server to check, behind the
// registry.
func shownBy(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	return info.State.PeerCertificates[0]
}

func nameOf(c *x509.Certificate) string {
	return strings.TrimPrefix(c.Subject.CommonName, agentv1.MachinePrefix)
}

func keyOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

func leafOf(chain []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(chain)
	if block == nil {
		return nil, errors.New("read the certificate just signed: not PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the certificate just signed: %w", err)
	}
	return c, nil
}
