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
)

// TestTapOfNothing: the command ends if what it should show does not exist, and says what stands against what does.
func TestTapOfNothing(t *testing.T) {
	s := httptest.NewServer(console.Handler(console.Config{
		Health: &served{}, Metrics: prometheus.NewRegistry(),
		Tap: func(_ context.Context, f model.TapFilter, show func(model.TapEvent) error) error {
			if f.Name == "crat" {
				return console.None("there is no HTTPRoute shop/crat; did you mean shop/cart?")
			}
			if err := show(model.TapEvent{Note: "no route for host a.test is published\x1b[2J"}); err != nil {
				return err
			}
			return show(model.TapEvent{Record: &model.TapRecord{Machine: "edge-1"}})
		},
	}))
	defer s.Close()
	out, err := execute("tap", "HTTPRoute/shop/crat", "--plane-console", s.URL)
	var u usageError
	if err == nil || errors.As(err, &u) || err.Error() != "there is no HTTPRoute shop/crat; did you mean shop/cart?" || out != "" {
		t.Errorf("prints %q, and %v", out, err)
	}
	out, err = execute("tap", "a.test", "--limit", "1", "--plane-console", s.URL)
	if err != nil || !strings.HasPrefix(out, "warning: no route for host a.test is published?[2J\nwaiting for requests; Ctrl-C ends\n") || !strings.HasSuffix(out, "1 request shown\n") {
		t.Errorf("prints %q, and %v", out, err)
	}
	if _, err := execute("tap", "a.test:8080", "--plane-console", s.URL); !errors.As(err, &u) || err.Error() != `ROUTE "a.test:8080": want a host without a port` {
		t.Error(err)
	}
}
