package access

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// chainHeader has the certificates of a caller whom another plane asks for: DER in base64, with commas.
const chainHeader = "Fairlead-Client-Certificates"

// maxChain is how many certificates a chain may have.
const maxChain = 8

// Guard is what stands before a handler.
type Guard struct {
	Judge *Judge
	// About says what a request wants to read. An error is the caller's mistake.
	About func(*http.Request) (Question, error)
	// Plane says whether a certificate is that of a plane of this API. A plane passes on the credentials of its
	// callers; for those on its own machine, who need none, it asks in its own name. Nil: no other plane asks.
	Plane func(chain []*x509.Certificate) bool
}

// Handler serves those who may, and sees that streams end with the right to them.
func (g Guard) Handler(next http.Handler) http.Handler {
	return g.Judge.meter.answered(g.Judge.now, func(w http.ResponseWriter, r *http.Request) (stream bool) {
		q, err := g.About(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return false
		}
		stream = q.Verb == WatchVerb || q.Verb == TapVerb
		c, own, err := g.credential(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return stream
		}
		if own {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{})))
			return stream
		}
		u, err := g.Judge.May(r.Context(), c, q)
		if err != nil {
			refuse(w, err)
			return stream
		}
		ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), callerKey{}, caller{u, c}))
		defer cancel(nil)
		if stream {
			go func() { cancel(g.Judge.hold(ctx, c, q)) }()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
		return stream
	})
}

func (g Guard) credential(r *http.Request) (c Credential, own bool, err error) {
	c.Token = bearer(r.Header.Get("Authorization"))
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		c.From = from.Addr().Unmap()
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return c, false, nil
	}
	if g.Plane == nil || !g.Plane(r.TLS.PeerCertificates) {
		c.Certificates = r.TLS.PeerCertificates
		return c, false, nil
	}
	c.From = netip.Addr{} // that of the plane says nothing of its callers
	if passed := r.Header.Get(chainHeader); passed != "" {
		c.Certificates, err = parseChain(passed)
		return c, false, err
	}
	return c, c.Token == "", nil
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.As(err, &UnknownError{}):
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+Group+`"`)
		status = http.StatusUnauthorized
	case errors.As(err, &DeniedError{}):
		status = http.StatusForbidden
	case errors.Is(err, StrangersError{}):
		status = http.StatusTooManyRequests
		fallthrough
	default:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	http.Error(w, err.Error(), status)
}

type (
	callerKey struct{}
	caller    struct {
		user       User
		credential Credential
	}
)

// UserOf is who asks, in the context of a request that a Guard let pass. It is the zero value for a plane.
func UserOf(ctx context.Context) User {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.user
}

// Pass puts the credential of whoever asks into a request to another plane.
func Pass(ctx context.Context, to http.Header) {
	c, _ := ctx.Value(callerKey{}).(caller)
	if c.credential.Token != "" {
		to.Set("Authorization", "Bearer "+c.credential.Token)
	}
	if len(c.credential.Certificates) > 0 {
		var list []string
		for _, certificate := range c.credential.Certificates {
			list = append(list, base64.StdEncoding.EncodeToString(certificate.Raw))
		}
		to.Set(chainHeader, strings.Join(list, ","))
	}
}

func parseChain(text string) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for part := range strings.SplitSeq(text, ",") {
		der, err := base64.StdEncoding.DecodeString(part)
		if err != nil || len(chain) == maxChain {
			return nil, errors.New("the certificates that were passed on cannot be read")
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, errors.New("the certificates that were passed on cannot be read")
		}
		chain = append(chain, certificate)
	}
	return chain, nil
}
