package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/share"
)

// Group is the API group of the resources that rights to read are given for. No object of it exists.
const Group = "read.fairlead.dev"

// WatchVerb is that of a question whose answer goes on.
const WatchVerb = "watch"

// TapVerb is that of a question whose answer goes on and shows single requests of clients.
const TapVerb = "tap"

const (
	// MaxAge is how long an answer of the API is used.
	MaxAge = 10 * time.Second
	// noAge is how long a no is used: who has just been given a right should not have to wait for it.
	noAge = 2 * time.Second
	// rejudge is how often open streams are judged again, by answers that are at most freshAge old: together they
	// are less than MaxAge.
	rejudge  = 5 * time.Second
	freshAge = 3 * time.Second
	// askTime bounds one question to the API.
	askTime = 5 * time.Second
	// maxAsked is how many questions the API is asked at once, maxAskedBy how many of them for one user, or for all
	// tokens of nobody known, and maxKept how many answers of a kind are kept.
	maxAsked   = 32
	maxAskedBy = 8
	maxKept    = 4096
)

// User is who asks, by the API.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Share is by whom shares are counted: the user, or the namespace of a ServiceAccount, of which a team may create any number.
func (u User) Share() string {
	if of, is := strings.CutPrefix(u.Name, "system:serviceaccount:"); is {
		namespace, _, _ := strings.Cut(of, ":")
		return "system:serviceaccounts:" + namespace
	}
	return u.Name
}

// Question is what somebody wants to read: a resource of Group, in a namespace or, without one, in all.
type Question struct {
	Verb, Resource, Namespace, Name string
	// Namespaced says that it could be asked for one namespace.
	Namespaced bool
}

// API is the part of the Kubernetes API that knows users and rights.
type API interface {
	// Authorities are the certificates, in PEM, of the authorities of client certificates. There may be none.
	Authorities(ctx context.Context) ([]byte, error)
	// Review says whose token it is; known is false when it is nobody's.
	Review(ctx context.Context, token string) (u User, known bool, err error)
	// Allows says whether a user may, and perhaps why.
	Allows(ctx context.Context, u User, q Question) (allowed bool, reason string, err error)
}

// Credential is what a request shows. Its zero value is none.
type Credential struct {
	Token string
	// Certificates are a chain, leaf first, whose key the caller has proven to have.
	Certificates []*x509.Certificate
	// From is the address of whoever shows it; invalid: a plane has passed it on.
	From netip.Addr
}

// UnknownError says that a credential is nobody's, or missing.
type UnknownError struct{ Why string }

// Error implements error.
func (e UnknownError) Error() string {
	return "unknown user: " + e.Why + ": use a kubeconfig of the Kubernetes API whose plane this is"
}

// DeniedError says that a user may not.
type DeniedError struct {
	User     string
	Question Question
	Reason   string // of the API; may be empty
}

// Error implements error.
func (e DeniedError) Error() string {
	q := e.Question
	where, role := "in all namespaces", "have a ClusterRoleBinding to the ClusterRole fairlead-reader made"
	if q.Namespace != "" {
		where = fmt.Sprintf("in namespace %q", q.Namespace)
		role = fmt.Sprintf("have a RoleBinding in namespace %q to the ClusterRole view or fairlead-namespace-reader made", q.Namespace)
	} else if q.Namespaced {
		role += ", or ask for one namespace (-n)"
	}
	if q.Verb == TapVerb { // nobody else's role has it
		role = "have a ClusterRoleBinding to the ClusterRole fairlead-tapper made, or ask for one namespace (-n)"
		if q.Namespace != "" {
			role = fmt.Sprintf("have a RoleBinding in namespace %q to the ClusterRole fairlead-tapper made", q.Namespace)
		}
	}
	text := fmt.Sprintf("user %q may not %s %s.%s %s: %s", e.User, q.Verb, q.Resource, Group, where, role)
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// AwayError says that the API could not be asked.
type AwayError struct{ Err error }

// Error implements error.
func (e AwayError) Error() string {
	return "the Kubernetes API does not say who may read: " + e.Err.Error() + ": ask again when it answers"
}

// StrangersError says that a token was not judged: it is of nobody known, and there are too many of these.
type StrangersError struct{}

// Error implements error.
func (StrangersError) Error() string {
	return fmt.Sprintf("too many tokens that this plane does not know, more than %d a second from one address or %d from all: ask again in %d seconds", strangersOfOne, strangersOfAll, retryAfter)
}

// Unwrap returns why.
func (e AwayError) Unwrap() error { return e.Err }

var errNobody = UnknownError{Why: "the request has neither a bearer token nor a client certificate"}

type (
	key      [sha256.Size]byte
	reviewed struct {
		user  User
		known bool
	}
	judged struct {
		allowed bool
		reason  string
	}
)

// Judge says who may. It is safe for concurrent use.
type Judge struct {
	api         API
	now         func() time.Time
	meter       *Meter
	strangers   *strangers
	known       *known
	authorities *answers[struct{}, *x509.CertPool]
	users       *answers[key, reviewed]
	rights      *answers[key, judged]
}

// NewJudge returns a judge by an API.
func NewJudge(api API, meter *Meter, now func() time.Time) *Judge {
	asking := share.New(maxAsked, maxAskedBy)
	return &Judge{
		api: api, now: now, meter: meter, strangers: newStrangers(), known: newKnown(),
		authorities: newAnswers[struct{}](asking, meter.told(kindAuthorities), now, func(*x509.CertPool) time.Duration { return MaxAge }),
		users: newAnswers[key](asking, meter.told(kindTokens), now, func(r reviewed) time.Duration {
			if r.known {
				return MaxAge
			}
			return noAge
		}),
		rights: newAnswers[key](asking, meter.told(kindRights), now, func(r judged) time.Duration {
			if r.allowed {
				return MaxAge
			}
			return noAge
		}),
	}
}

// May returns the user whose credential it is. The error is an UnknownError, a DeniedError, a StrangersError or an
// AwayError when that user may not, or nobody can say.
func (j *Judge) May(ctx context.Context, c Credential, q Question) (User, error) {
	return j.may(ctx, c, q, MaxAge)
}

func (j *Judge) may(ctx context.Context, c Credential, q Question, age time.Duration) (User, error) {
	u, err := j.identify(ctx, c, age)
	if err != nil {
		return User{}, err
	}
	k, err := keyOf(u, q)
	if err != nil {
		return u, AwayError{err}
	}
	a, err := j.rights.get(ctx, k, age, asked[judged]{by: u.Share(), ask: func(ctx context.Context) (judged, error) {
		allowed, reason, err := j.api.Allows(ctx, u, q)
		return judged{allowed, reason}, err
	}})
	switch {
	case err != nil:
		return u, AwayError{err}
	case !a.allowed:
		return u, DeniedError{User: u.Name, Question: q, Reason: a.reason}
	}
	return u, nil
}

// identify tries the certificate first, as the Kubernetes API does.
func (j *Judge) identify(ctx context.Context, c Credential, age time.Duration) (User, error) {
	err := error(errNobody)
	if len(c.Certificates) > 0 {
		var u User
		if u, err = j.certified(ctx, c.Certificates, age); err == nil {
			return u, nil
		}
	}
	if c.Token == "" {
		return User{}, err
	}
	a, err := j.review(ctx, c, age)
	switch {
	case errors.Is(err, StrangersError{}):
		return User{}, err
	case err != nil:
		return User{}, AwayError{err}
	case !a.known:
		return User{}, UnknownError{Why: "the Kubernetes API does not know the token, or it has expired"}
	}
	return a.user, nil
}

// review says whose token it is. Nobody else's tokens keep those waiting that were somebody's before.
func (j *Judge) review(ctx context.Context, c Credential, age time.Duration) (reviewed, error) {
	k := key(sha256.Sum256([]byte(c.Token)))
	q := asked[reviewed]{ask: func(ctx context.Context) (reviewed, error) {
		u, known, err := j.api.Review(ctx, c.Token)
		if err == nil {
			j.known.note(k, u.Share(), known, j.now())
		}
		return reviewed{u, known}, err
	}}
	var known bool
	if q.by, known = j.known.user(k, j.now()); !known {
		q.by = nobody
		q.admit = func() error {
			if j.strangers.admit(c.From, j.now()) {
				return nil
			}
			j.meter.refused.Inc()
			return StrangersError{}
		}
	}
	return j.users.get(ctx, k, age, q)
}

func (j *Judge) certified(ctx context.Context, chain []*x509.Certificate, age time.Duration) (User, error) {
	roots, err := j.authorities.get(ctx, struct{}{}, age, asked[*x509.CertPool]{ask: func(ctx context.Context) (*x509.CertPool, error) {
		pem, err := j.api.Authorities(ctx)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem) // none: nobody is known by a certificate
		return pool, nil
	}})
	if err != nil {
		return User{}, AwayError{err}
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: j.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return User{}, UnknownError{Why: "the client certificate is of no authority of the Kubernetes API, or is not valid now"}
	}
	if chain[0].Subject.CommonName == "" {
		return User{}, UnknownError{Why: "the client certificate has no common name"}
	}
	return User{Name: chain[0].Subject.CommonName, Groups: append(slices.Clone(chain[0].Subject.Organization), "system:authenticated")}, nil
}

// hold returns an error when a right is gone, and nil when ctx ends.
func (j *Judge) hold(ctx context.Context, c Credential, q Question) error {
	ticker := time.NewTicker(rejudge)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, err := j.may(ctx, c, q, freshAge); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func keyOf(u User, q Question) (key, error) {
	text, err := json.Marshal([]any{u, q})
	if err != nil {
		return key{}, fmt.Errorf("name the right: %w", err)
	}
	return sha256.Sum256(text), nil
}

// bearer is the token of a header; empty: it has none.
func bearer(header string) string {
	scheme, token, found := strings.Cut(header, " ")
	if !found || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// errBusy is why nobody was asked.
var errBusy = errors.New("it is asked too much at once")
