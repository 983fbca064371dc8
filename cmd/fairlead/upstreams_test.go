package main

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// planeWith is the console of a plane that has these upstreams.
func planeWith(t *testing.T, rows ...model.UpstreamStatus) string {
	t.Helper()
	s := httptest.NewServer(console.Handler(console.Config{
		Health: &served{}, Metrics: prometheus.NewRegistry(),
		Upstreams: func(_ context.Context, name string) ([]model.UpstreamStatus, error) {
			for _, r := range rows {
				if r.Name == name {
					return []model.UpstreamStatus{r}, nil
				}
			}
			if name != "" {
				return nil, console.None("there is no Upstream " + name)
			}
			return rows, nil
		},
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestUpstreamsAreShown(t *testing.T) {
	url := planeWith(t, model.UpstreamStatus{Name: "up01", Type: "Kubernetes"}, model.UpstreamStatus{Name: "up02", Type: "OpenStack"})
	for line, says := range map[string]string{
		"upstreams":              "up02  OpenStack",
		"upstreams up01":         "up01, Kubernetes",
		"upstreams -o json":      `"name": "up02"`,
		"upstreams up01 -o yaml": "name: up01",
	} {
		out, err := execute(append(strings.Fields(line), "--plane-console", url)...)
		if err != nil || !strings.Contains(out, says) {
			t.Errorf("fairlead %s: %v, and\n%s", line, err, out)
		}
	}
	if out, err := execute("upstreams", "up03", "--plane-console", url); err == nil || err.Error() != "there is no Upstream up03" || out != "" {
		t.Errorf("of a name that nobody has: %v, and\n%s", err, out)
	}
	c := &cobra.Command{}
	c.SetContext(t.Context())
	if got, _ := completeUpstream(&url)(c, nil, ""); !slices.Equal(got, []string{"up01", "up02"}) {
		t.Errorf("names are completed by %v", got)
	}
}

// A watch prints after each change and no more, and goes on after a question that failed.
func TestUpstreamsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		answers := []struct {
			row v1.Upstream
			err error
		}{
			{row: v1.Upstream{Name: "up01", Refused: 1}},
			{row: v1.Upstream{Name: "up01", Refused: 1, Lag: 5}}, // nothing but time
			{err: errors.New("away")},
			{row: v1.Upstream{Name: "up01", Refused: 1}}, // it is back
			{row: v1.Upstream{Name: "up01", Refused: 2}},
		}
		n := 0
		var out, warned bytes.Buffer
		err := watchUpstreams(ctx, &out, &warned, false, upstreamsView{output: "json"}, func(context.Context) ([]v1.Upstream, error) {
			if n == len(answers) {
				cancel()
				return nil, ctx.Err()
			}
			a := answers[n]
			n++
			return []v1.Upstream{a.row}, a.err
		})
		if got := strings.Count(out.String(), `"name": "up01"`); err != nil || got != 3 || !strings.Contains(warned.String(), "away") {
			t.Errorf("%v, and it is printed %d times, want 3; warned of %q", err, got, warned.String())
		}
	})
	away := func(context.Context) ([]v1.Upstream, error) { return nil, errors.New("away") }
	if err := watchUpstreams(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}, false, upstreamsView{output: "text"}, away); err == nil {
		t.Error("a plane that never answered is waited for")
	}
}

// Offline, the labels of a stored Service say of what it was discovered.
func TestExplainNamesTheUpstream(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	text := strings.Replace(explained, "metadata: {name: app, namespace: default}\nspec:\n  ports", `metadata:
  name: app
  namespace: default
  labels: {fairlead.dev/upstream: up01}
  annotations: {fairlead.dev/upstream-object: Service team01/app}
spec:
  ports`, 1)
	if text == explained {
		t.Fatal("the manifests have no such Service")
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := execute("explain", "http://root.example.com/", "-f", file)
	if err != nil || !strings.Contains(out, "Service team01/app of Upstream up01\n") {
		t.Errorf("%v, and\n%s", err, out)
	}
}
