package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane"
)

// TestCompletion has shells ask what may follow: no command offers files where none is meant, and names come from the plane.
func TestCompletion(t *testing.T) {
	route := func(kind, namespace, name, host string) model.RouteRow {
		return model.RouteRow{Host: host, Match: "prefix /", Name: name, Owner: model.Object{Kind: kind, Namespace: namespace, Name: name}}
	}
	rows := []model.RouteRow{
		route("HTTPRoute", "shop", "cart", "shop.example.com"), route("HTTPRoute", "shop", "cart", "*.example.com"), route("IngressRoute", "news", "app", "news.example.com"),
	}
	s := httptest.NewServer(console.Handler(console.Config{
		Health: &served{}, Metrics: prometheus.NewRegistry(), ChangedKind: plane.ChangedKind,
		Changes: func(context.Context) ([]model.Change, error) {
			return []model.Change{
				{Number: 2, Who: "alice", Object: model.Object{Kind: "HTTPRoute", Namespace: "shop", Name: "cart"}},
				{Number: 1, Who: "bob", Object: model.Object{Kind: "Machine", Name: "edge-1"}},
			}, nil
		},
		Routes: &console.RouteList{
			Rows: func(_ context.Context, _, namespace string) (of []model.RouteRow, _ error) {
				for _, r := range rows {
					if namespace == "" || r.Owner.Namespace == namespace {
						of = append(of, r)
					}
				}
				return of, nil
			},
			Figures: func(context.Context, []model.RouteRow) []model.RouteRow {
				t.Error("proxies are asked for figures")
				return nil
			},
		},
		Status: func(context.Context) any {
			return model.Status{Routes: []model.RouteStatus{{Namespace: "shop"}, {Namespace: "news"}, {Namespace: "shop"}}}
		},
	}))
	defer s.Close()
	const none, dirs, begins, inOrder = 4, 16, 6, 36 // of cobra's directives
	for _, c := range []struct {
		line string
		want string
		how  int
	}{
		{"top ", "routes hosts namespaces listeners upstreams frontends backends", inOrder},
		{"top routes ", "", none},
		{"top --sort ", "rate errors latency name", none},
		{"top --limit ", "", none},
		{"top -n ", "news shop", none},
		{"top --plane-console ", "", none},
		{"tap ", "shop/cart shop.example.com *.example.com news/app news.example.com", none},
		{"tap sho", "shop/cart shop.example.com", none},
		{"tap HTTPRoute/", "HTTPRoute/shop/cart", none},
		{"tap -n news ", "news/app news.example.com", none},
		{"tap -o ", "text json", none},
		{"tap --status ", "2xx 3xx 4xx 5xx", none},
		{"tap --path ", "", none},
		{"changes HT", "HTTPRoute", begins},
		{"changes HTTPRoute/", "HTTPRoute/shop/cart", none},
		{"changes machine/e", "machine/edge-1", none},
		{"changes HTTPRoute/shop/cart ", "", none},
		{"changes -n n", "news", none},
		{"changes --who a", "alice", none},
		{"changes --since ", "", none},
		{"routes n", "news.example.com", none},
		{"status ", "", none},
		{"dashboards ", "", none},
		{"dashboards --write ", "", dirs},
	} {
		words := strings.Split(c.line, " ")
		args := append([]string{"__complete", words[0]}, words[1:]...)
		if words[0] != "dashboards" {
			args = append([]string{"__complete", words[0], "--plane-console=" + s.URL}, words[1:]...)
		}
		out, err := execute(args...)
		lines := strings.Split(out, "\n")
		at := 0
		for at < len(lines) && !strings.HasPrefix(lines[at], ":") {
			at++
		}
		if err != nil || at == len(lines) {
			t.Fatalf("%q: %q, %v", c.line, out, err)
		}
		if got := strings.Join(lines[:at], " "); got != c.want || lines[at] != fmt.Sprint(":", c.how) {
			t.Errorf("%q: %s %s, want %s :%d", c.line, got, lines[at], c.want, c.how)
		}
	}
	// Whoever may not read the status has the namespaces of the own contexts.
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("contexts: [{name: a, context: {namespace: bank}}, {name: b, context: {namespace: shop}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := execute("__complete", "routes", "--plane-console=http://127.0.0.1:1", "--kubeconfig="+file, "-n", "")
	if err != nil || !strings.HasPrefix(out, "bank\nshop\n:4\n") {
		t.Errorf("of contexts: %q, %v", out, err)
	}
}
