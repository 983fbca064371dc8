package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane"
)

// TestWrongQuestions: a question that a plane does not understand is a usage error, in the plane's words.
func TestWrongQuestions(t *testing.T) {
	s := httptest.NewServer(console.Handler(console.Config{
		Health: &served{}, Metrics: prometheus.NewRegistry(), ChangedKind: plane.ChangedKind,
		Changes: func(context.Context) ([]model.Change, error) { return nil, nil },
	}))
	defer s.Close()
	for line, says := range map[string]string{
		"changes HTTPRout":                         `object: no changes are kept of kind "HTTPRout", only of AddressPool,`,
		"changes httprouts/shop/www":               "; did you mean HTTPRoute?",
		"changes a/b/c/d":                          "want KIND, KIND/NAME or KIND/NAMESPACE/NAME",
		"changes HTTPRoute/shop/www --namespace b": `"HTTPRoute/shop/www" is not in namespace "b" (-n)`,
	} {
		out, err := execute(append(strings.Fields(line), "--plane-console", s.URL)...)
		var u usageError
		if !errors.As(err, &u) || u.command != "fairlead changes" || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), s.URL) {
			t.Errorf("fairlead %s: %v", line, err)
		}
		if out != "" {
			t.Errorf("fairlead %s: prints %q", line, out)
		}
	}
	if out, err := execute("changes", "httproute/shop/www", "--plane-console", s.URL); err != nil || out != "no change matches; planes keep the last 1,000\n" {
		t.Errorf("%q, %v", out, err)
	}
}
