package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"fairlead.dev/internal/access"
	"fairlead.dev/internal/console"
)

// listenRead opens the address of the read API; it is nil without one.
func listenRead(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the read API at %s (--read-address chooses another, an empty one turns it off): %w", address, err)
	}
	return l, nil
}

func newJudge(c *rest.Config, metrics prometheus.Registerer) (*access.Judge, error) {
	api, err := access.Kubernetes(c)
	if err != nil {
		return nil, err
	}
	meter, err := access.NewMeter(metrics)
	if err != nil {
		return nil, err
	}
	return access.NewJudge(api, meter, time.Now), nil
}

// readerOf is by what name the shares of whoever reads are counted; it is empty on a plane's machine. All ServiceAccounts of a namespace
// are one reader: whoever may create one may create many.
func readerOf(ctx context.Context) string { return access.UserOf(ctx).Share() }

// serveRead serves the read API on l until ctx is done. Until the plane runs, no connection is made.
func serveRead(ctx context.Context, l net.Listener, shown *served, c console.Config) error {
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if r := shown.running.Load(); r != nil {
			return r.ReadTLS()
		}
		return nil, errStarting
	}}
	return console.ServeHandler(ctx, tls.NewListener(l, config), shown.guarded(console.Reads(c)), c.Log)
}

// guarded answers those who may read.
func (s *served) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running := s.running.Load()
		if running == nil {
			http.Error(w, errStarting.Error(), http.StatusServiceUnavailable)
			return
		}
		access.Guard{
			Judge: running.judge, Plane: running.IsPlane,
			About: func(r *http.Request) (access.Question, error) {
				q, err := console.About(r)
				return access.Question{
					Verb: q.Verb, Resource: q.Resource, Namespace: q.Namespace, Name: q.Name, Namespaced: console.Namespaced(r.URL.Path),
				}, err
			},
		}.Handler(next).ServeHTTP(w, r)
	})
}

// relay asks another plane for whoever asked this one.
func (s *served) relay(request *http.Request) (*http.Response, error) {
	running := s.running.Load()
	if running == nil {
		return nil, errStarting
	}
	config, err := running.RelayTLS()
	if err != nil {
		return nil, err
	}
	access.Pass(request.Context(), request.Header)
	// A connection for each question: it shows who asks for whom, and the leader may be another one next time.
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, TLSHandshakeTimeout: 5 * time.Second}
	return (&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(request)
}
