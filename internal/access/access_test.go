package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	list  = Question{Verb: "list", Resource: "routes"}
	watch = Question{Verb: WatchVerb, Resource: "routes"}
	anna  = Credential{Token: "of anna"}
)

func newFake() *fake {
	return &fake{tokens: map[string]User{"of anna": {Name: "anna"}, "of bert": {Name: "bert"}}, allowed: map[string][]Question{"anna": {list, watch}}}
}

func newJudge(t *testing.T, api API) *Judge {
	t.Helper()
	meter, err := NewMeter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewJudge(api, meter, time.Now)
}

func TestMay(t *testing.T) {
	f := newFake()
	j := newJudge(t, f)
	if u, err := j.May(t.Context(), anna, list); err != nil || u.Name != "anna" {
		t.Errorf("anna: %v, %v", u, err)
	}
	_, err := j.May(t.Context(), Credential{Token: "of bert"}, Question{Verb: "list", Resource: "routes", Namespace: "shop"})
	if d, is := errors.AsType[DeniedError](err); !is || d.User != "bert" || !strings.Contains(err.Error(), `may not list routes.read.fairlead.dev in namespace "shop"`) {
		t.Errorf("bert: %v", err)
	}
	for what, c := range map[string]Credential{"nothing": {}, "another token": {Token: "x"}} {
		if _, err := j.May(t.Context(), c, list); !errors.As(err, &UnknownError{}) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A yes is used for ten seconds; an error is none, and takes nothing away before.
func TestAnswersAreUsedForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := newJudge(t, f)
		may := func() error { _, err := j.May(t.Context(), anna, list); return err }
		if err := may(); err != nil {
			t.Fatal(err)
		}
		f.set(func(f *fake) { f.away = errors.New("refused"); f.asked = 0 })
		time.Sleep(MaxAge - time.Nanosecond)
		if err := may(); err != nil || f.count() != 0 {
			t.Errorf("within ten seconds: %v after %d questions", err, f.count())
		}
		time.Sleep(time.Nanosecond)
		if err := may(); !errors.As(err, &AwayError{}) {
			t.Errorf("after them: %v", err)
		}
		f.set(func(f *fake) { f.away = nil })
		if err := may(); err != nil {
			t.Errorf("the error was kept: %v", err)
		}
		f.set(func(f *fake) { f.allowed = nil })
		time.Sleep(MaxAge)
		if err := may(); !errors.As(err, &DeniedError{}) {
			t.Errorf("without the right: %v", err)
		}
	})
}

// Many who ask the same are one question to the API.
func TestOneQuestionForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.hold = make(chan struct{})
		j := newJudge(t, f)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, err := j.May(t.Context(), anna, list); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(f.hold)
		all.Wait()
		if f.count() != 2 {
			t.Errorf("%d questions, want one of each kind", f.count())
		}
	})
}

// A stream ends within ten seconds after the right to it has gone, and when nobody can say for so long.
func TestStreamsEndWithTheRight(t *testing.T) {
	for what, change := range map[string]func(*fake){
		"right":      func(f *fake) { f.allowed = nil },
		"credential": func(f *fake) { f.tokens = nil },
		"API":        func(f *fake) { f.away = errors.New("refused") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				g := Guard{Judge: newJudge(t, f), About: func(*http.Request) (Question, error) { return watch, nil }}
				ended := make(chan error, 1)
				go g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					ended <- context.Cause(r.Context())
				})).ServeHTTP(httptest.NewRecorder(), request(anna.Token))
				time.Sleep(time.Minute)
				select {
				case err := <-ended:
					t.Fatalf("ended with the right: %v", err)
				default:
				}
				f.set(change)
				at := time.Now()
				if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
					t.Errorf("no reason: %v", err)
				}
				if took := time.Since(at); took > MaxAge {
					t.Errorf("ended after %s", took)
				}
			})
		})
	}
}

func request(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/routes", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func TestGuard(t *testing.T) {
	f := newFake()
	g := Guard{Judge: newJudge(t, f), About: func(*http.Request) (Question, error) { return list, nil }}
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(UserOf(r.Context()).Name)) }))
	for token, want := range map[string]int{"of anna": 200, "of bert": 403, "x": 401, "": 401} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(token))
		if w.Code != want || want == 200 && w.Body.String() != "anna" {
			t.Errorf("%q: %d %s", token, w.Code, w.Body)
		}
	}
	f.set(func(f *fake) { f.away = errors.New("refused") })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request("another"))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the Kubernetes API does not say") {
		t.Errorf("without an API: %d %s", w.Code, w.Body)
	}
}

// authority signs certificates of clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return authority{sign(t, template, template, key, key), key}
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a authority) client(t *testing.T, name string, usage x509.ExtKeyUsage, until time.Duration) []*x509.Certificate {
	t.Helper()
	return []*x509.Certificate{sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"sales"}}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(until),
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, a.cert, a.key, a.key)}
}

func sign(t *testing.T, template, parent *x509.Certificate, public, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCertificates(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	f := newFake()
	f.authorities = a.pem()
	j := newJudge(t, f)
	u, err := j.May(t.Context(), Credential{Certificates: a.client(t, "anna", x509.ExtKeyUsageClientAuth, time.Hour)}, list)
	if err != nil || u.Name != "anna" || len(u.Groups) != 2 || u.Groups[0] != "sales" {
		t.Errorf("%v, %v", u, err)
	}
	for what, chain := range map[string][]*x509.Certificate{
		"of another authority": stranger.client(t, "anna", x509.ExtKeyUsageClientAuth, time.Hour),
		"of a server":          a.client(t, "anna", x509.ExtKeyUsageServerAuth, time.Hour),
		"expired":              a.client(t, "anna", x509.ExtKeyUsageClientAuth, -time.Minute),
		"without a name":       a.client(t, "", x509.ExtKeyUsageClientAuth, time.Hour),
	} {
		if _, err := j.May(t.Context(), Credential{Certificates: chain}, list); !errors.As(err, &UnknownError{}) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What a plane passes on is judged as if its caller had come itself; what anybody else passes on is ignored.
func TestPassedCredentials(t *testing.T) {
	a, planes := newAuthority(t), newAuthority(t)
	f := newFake()
	f.authorities = a.pem()
	of := func(name string) []*x509.Certificate {
		return a.client(t, name, x509.ExtKeyUsageClientAuth, time.Hour)
	}
	plane := planes.client(t, "plane", x509.ExtKeyUsageServerAuth, time.Hour)
	g := Guard{
		Judge: newJudge(t, f), About: func(*http.Request) (Question, error) { return list, nil },
		Plane: func(chain []*x509.Certificate) bool { return chain[0].Equal(plane[0]) },
	}
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for what, c := range map[string]struct {
		shown  []*x509.Certificate
		passed Credential
		want   int
	}{
		"a plane for anna":                {plane, Credential{Certificates: of("anna")}, 200},
		"a plane for bert":                {plane, Credential{Certificates: of("bert")}, 403},
		"a plane for anna's token":        {plane, anna, 200},
		"a plane for bert's token":        {plane, Credential{Token: "of bert"}, 403},
		"a plane for its machine":         {plane, Credential{}, 200},
		"bert, who says that he is anna":  {of("bert"), Credential{Certificates: of("anna")}, 403},
		"nobody, who says that he is she": {nil, Credential{Certificates: of("anna")}, 401},
	} {
		r := request("")
		r.TLS = &tls.ConnectionState{PeerCertificates: c.shown}
		Pass(context.WithValue(t.Context(), callerKey{}, caller{credential: c.passed}), r.Header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", what, w.Code, w.Body, c.want)
		}
	}
}

// A team may create any number of ServiceAccounts in its namespace: they have one share together.
func TestServiceAccountsShare(t *testing.T) {
	for name, want := range map[string]string{
		"anna": "anna", "system:serviceaccount:shop:a": "system:serviceaccounts:shop", "system:serviceaccount:shop:b": "system:serviceaccounts:shop",
		"system:serviceaccount:news:a": "system:serviceaccounts:news", "": "",
	} {
		if got := (User{Name: name}).Share(); got != want {
			t.Errorf("%q has the share of %q, want %q", name, got, want)
		}
	}
}
