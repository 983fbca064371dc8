package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
)

// TestQuestionsThatFail says that a plane is missing where none answers, and what is wrong
// with the question where one does.
func TestQuestionsThatFail(t *testing.T) {
	s := httptest.NewServer(console.Handler(console.Config{
		Health: &served{}, Metrics: prometheus.NewRegistry(),
		Backends: func(_ context.Context, of string) ([]model.BackendStatus, error) {
			if of == "shop/none" {
				return nil, fmt.Errorf("%w of that name", console.ErrNone)
			}
			return nil, fmt.Errorf("not now")
		},
	}))
	client := console.Client{URL: s.URL, HTTP: s.Client()}
	_, none := client.Backends(t.Context(), "shop/none")
	_, busy := client.Backends(t.Context(), "shop/web")
	s.Close()
	_, gone := client.Backends(t.Context(), "shop/web")
	if got := advised(none).Error(); got != "there is none of that name" {
		t.Errorf("it says %q", got)
	}
	if got := advised(busy).Error(); !strings.Contains(got, "not now") || strings.Contains(got, "no plane answers") {
		t.Errorf("it says %q", got)
	}
	if got := advised(gone).Error(); !strings.Contains(got, "no plane answers") {
		t.Errorf("it says %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, ended := client.Backends(ctx, "shop/web")
	if err := advised(ended); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "no plane answers") {
		t.Errorf("of a question that was broken off: %v", err)
	}
	for what, answer := range map[string]string{"is no JSON": "<html>", "is cut": "[{", "is JSON of another type": `"none"`} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
		client := console.Client{URL: s.URL, HTTP: s.Client()}
		_, rows := client.Backends(t.Context(), "shop/web")
		_, status := client.Status(t.Context())
		s.Close()
		for _, got := range []error{rows, status} {
			if err := advised(got); err == nil || err.Error() != got.Error() {
				t.Errorf("of an answer that %s: %v, want %v", what, err, got)
			}
		}
	}
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "9") }))
	defer s.Close()
	_, err := console.Client{URL: s.URL, HTTP: s.Client()}.Backends(t.Context(), "shop/web")
	if got := advised(err); got == nil || strings.Contains(got.Error(), "no plane answers") {
		t.Errorf("of an answer that breaks off: %v", got)
	}
	if advised(nil) != nil {
		t.Error("a question that did not fail is an error")
	}
}

// TestAgentsConsole says that the console that answers is an agent's, and where the plane's is.
func TestAgentsConsole(t *testing.T) {
	for _, status := range []any{
		map[string]any{"machine": "edge-1", "plane": "192.0.2.1:7443", "problems": []any{}},
		map[string]any{"machine": "edge-1", "trouble": "no plane"},
	} {
		s := httptest.NewServer(console.Handler(console.Config{
			Health: &served{}, Metrics: prometheus.NewRegistry(), Status: func(context.Context) any { return status },
		}))
		for _, verb := range []string{"status", "vips", "bgp", "routes", "backends", "flows", "revisions", "explain http://a.test/"} {
			_, err := execute(append(strings.Fields(verb), "--plane-console", s.URL)...)
			if err == nil || !strings.Contains(err.Error(), "agent") || !strings.Contains(err.Error(), "--plane-console names the plane's") {
				t.Errorf("fairlead %s: %v", verb, err)
			}
		}
		s.Close()
	}
}

// TestNamesAreCompleted completes what a plane knows, and nothing where there is none.
func TestNamesAreCompleted(t *testing.T) {
	key := model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 80}
	s := httptest.NewServer(console.Handler(console.Config{
		Health: &served{}, Metrics: prometheus.NewRegistry(),
		Status: func(context.Context) any {
			return model.Status{
				Machines:  []model.MachineStatus{{Name: "edge-1"}, {Name: "edge-2"}},
				Frontends: []model.FrontendStatus{{FrontendKey: key, Owner: model.Object{Kind: "Service", Namespace: "shop", Name: "web"}}},
			}
		},
	}))
	c := &cobra.Command{}
	c.SetContext(t.Context())
	if got, _ := completeOne(&s.URL, machineNames)(c, nil, ""); !slices.Equal(got, []string{"edge-1", "edge-2"}) {
		t.Errorf("machines: %v", got)
	}
	if got, _ := completeOne(&s.URL, frontendNames)(c, nil, ""); !slices.Equal(got, []string{"tcp://192.0.2.1:80", "shop/web"}) {
		t.Errorf("frontends: %v", got)
	}
	if got, _ := completeOne(&s.URL, machineNames)(c, []string{"edge-1"}, ""); len(got) != 0 {
		t.Errorf("a second argument: %v", got)
	}
	s.Close()
	if got, how := completeOne(&s.URL, machineNames)(c, nil, ""); len(got) != 0 || how != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("without a plane: %v, %v", got, how)
	}
}
