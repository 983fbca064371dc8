package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestLoopbackOnly(t *testing.T) {
	h := Handler(Config{Health: health{}, Metrics: prometheus.NewRegistry(), Loopback: true})
	for from, want := range map[string]int{
		"127.0.0.1:9": http.StatusNotFound, "[::1]:9": http.StatusNotFound, "[::ffff:127.0.0.1]:9": http.StatusNotFound,
		"192.0.2.1:9": http.StatusForbidden, "[2001:db8::1]:9": http.StatusForbidden, "": http.StatusForbidden,
	} {
		for _, path := range []string{"/v1/routes", "/v1/flows", "/v1/explain/flow", "/v1/"} {
			r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
			r.RemoteAddr = from
			if h.ServeHTTP(w, r); w.Code != want || want == http.StatusForbidden && !strings.Contains(w.Body.String(), "read API") {
				t.Errorf("%s from %q: %d %s", path, from, w.Code, w.Body)
			}
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
			r.RemoteAddr = from
			if h.ServeHTTP(w, r); w.Code == http.StatusForbidden {
				t.Errorf("%s from %q: %d %s", path, from, w.Code, w.Body)
			}
		}
	}
}

func TestAbout(t *testing.T) {
	for uri, want := range map[string]Right{
		"/v1/status":                           {Verb: "get", Resource: "status"},
		"/v1/routes?host=a.test":               {Verb: "list", Resource: "routes"},
		"/v1/routes?namespace=shop":            {Verb: "list", Resource: "routes", Namespace: "shop"},
		"/v1/routes?namespace=a&namespace=b":   {Verb: "list", Resource: "routes", Namespace: "a"},
		"/v1/routes?namespace=shop&watch=true": {Verb: "watch", Resource: "routes", Namespace: "shop"},
		"/v1/backends?of=x&namespace=shop":     {Verb: "list", Resource: "backends", Namespace: "shop"},
		"/v1/changes?namespace=shop&object=x":  {Verb: "list", Resource: "changes", Namespace: "shop"},
		"/v1/upstreams?name=up":                {Verb: "get", Resource: "upstreams", Name: "up"},
		"/v1/explain/flow?url=x":               {Verb: "get", Resource: "explanations"},
	} {
		if q, err := About(httptest.NewRequest(http.MethodGet, uri, nil)); err != nil || q != want {
			t.Errorf("%s: %+v, %v", uri, q, err)
		}
	}
	for _, uri := range []string{"/v1/status?namespace=shop", "/v1/flows?namespace=shop", "/v1/explain?namespace=shop", "/v1//routes", "/v1/drops", "/metrics", "/v1/routes?a;namespace=shop"} {
		if q, err := About(httptest.NewRequest(http.MethodGet, uri, nil)); err == nil {
			t.Errorf("%s is about %+v", uri, q)
		}
	}
	if _, err := About(httptest.NewRequest(http.MethodPost, "/v1/routes", nil)); err == nil {
		t.Error("a POST reads something")
	}
}
