package e2e

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// TestTranslateSaysWhatServes feeds what is applied to `fairlead translate` and
// compares hosts, routes and weights with what the Envoys of both edges run.
func TestTranslateSaysWhatServes(t *testing.T) {
	s := shared(t)
	s.namespace(t, "offline")
	s.apply(t, service("offline", "app", s.backends["os1-a"]), service("offline", "other", s.backends["os1-b"]),
		httpRoute("offline", "split", "*.offline.example.com", "{backendRefs: [{name: app, port: 80, weight: 7}, {name: other, port: 80, weight: 2}, {name: nobody, port: 80, weight: 1}]}"))
	s.awaitConditions(t, "HTTPRoute offline/split", programmed)
	manifests := filepath.Join(t.TempDir(), "all.yaml")
	all := s.kubectl(t, "get", "gatewayclasses,gateways,httproutes,ingressroutes,services,endpointslices,namespaces", "-A", "-o", "yaml")
	if err := os.WriteFile(manifests, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := s.run(t, s.plane.Machine, "translate", "-f", manifests, "-o", "json")
	if status != 0 {
		t.Fatalf("translate ended with %d: %s", status, errs)
	}
	var desired struct {
		VirtualHosts []model.VirtualHost
	}
	if err := json.Unmarshal([]byte(out), &desired); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, h := range desired.VirtualHosts {
		for _, r := range h.Routes {
			if r.Forward == nil {
				continue
			}
			weights := map[string]uint32{}
			for _, b := range r.Forward.Backends {
				if b.Weight > 0 && b.Group != "" { // one that cannot be resolved has its share of 500s elsewhere
					weights[string(b.Group)] += b.Weight
				}
			}
			want[h.Host+" "+r.Name] = weighed(weights)
		}
	}
	if len(want) < 4 {
		t.Fatalf("translate knows these routes only: %v\n%s", want, out)
	}
	for _, edge := range s.edges() {
		s.await(t, edge+" to run what translate says", func(ctx context.Context) error {
			got, err := s.runs(ctx, edge)
			if err != nil {
				return err
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("it runs\n%v\nwant\n%v", got, want)
			}
			return nil
		})
	}
	if wrong := wantText(out, "offline.example.com", "team01-app.example.com"); wrong != "" {
		t.Error(wrong)
	}
}

// weighed writes weights by group, in the order of the groups. A route to one group
// has all of the weight, whatever it is.
func weighed(weights map[string]uint32) string {
	if len(weights) == 1 {
		for g := range weights {
			return "all to " + g
		}
	}
	var parts []string
	for _, g := range slices.Sorted(maps.Keys(weights)) {
		parts = append(parts, fmt.Sprintf("%d to %s", weights[g], g))
	}
	return strings.Join(parts, ", ")
}

// wantText names the texts that are missing.
func wantText(in string, texts ...string) string {
	var missing []string
	for _, text := range texts {
		if !strings.Contains(in, text) {
			missing = append(missing, fmt.Sprintf("%q", text))
		}
	}
	if missing == nil {
		return ""
	}
	return "there is no " + strings.Join(missing, ", no ") + " in:\n" + in
}

// runs asks an edge's Envoy which routes it has: host and route name to weights.
func (s *site) runs(ctx context.Context, edge string) (map[string]string, error) {
	run, err := s.Lab.Machine(edge).Dir("run")
	if err != nil {
		return nil, err
	}
	admin := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(run, "admin.sock"))
	}}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin/config_dump?resource=dynamic_route_configs", nil)
	if err != nil {
		return nil, err
	}
	resp, err := admin.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	type cluster struct {
		Name   string `json:"name"`
		Weight uint32 `json:"weight"`
	}
	var dump struct {
		Configs []struct {
			RouteConfig struct {
				VirtualHosts []struct {
					Domains []string `json:"domains"`
					Routes  []struct {
						Name  string `json:"name"`
						Route struct {
							Cluster          string `json:"cluster"`
							WeightedClusters struct {
								Clusters []cluster `json:"clusters"`
							} `json:"weighted_clusters"`
						} `json:"route"`
					} `json:"routes"`
				} `json:"virtual_hosts"`
			} `json:"route_config"`
		} `json:"configs"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&dump); err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, c := range dump.Configs {
		for _, h := range c.RouteConfig.VirtualHosts {
			for _, r := range h.Routes {
				clusters := r.Route.WeightedClusters.Clusters
				if r.Route.Cluster != "" {
					clusters = append(clusters, cluster{r.Route.Cluster, 1})
				}
				weights := map[string]uint32{}
				for _, c := range clusters {
					weights[c.Name] += c.Weight
				}
				if len(weights) > 0 {
					found[h.Domains[0]+" "+r.Name] = weighed(weights)
				}
			}
		}
	}
	return found, nil
}

// TestStatusForPeople compares the screen of `fairlead status` with what is so.
func TestStatusForPeople(t *testing.T) {
	s := shared(t)
	s.namespace(t, "people")
	show := func() string {
		t.Helper()
		status, out, errs := s.run(t, s.plane.Machine, "status")
		if status != 0 {
			t.Fatalf("status ended with %d: %s", status, errs)
		}
		return out
	}
	s.awaitNoProblem(t)
	out := show()
	if wrong := wantText(out, ", leading, up ", "Machines (2)", "edge-1", "edge-2", "ready", "Listeners (1)", "http-80", "Routes (", "news-team/news ",
		"news.example.com", "programmed", "\nNothing is wrong.\n"); wrong != "" {
		t.Error(wrong)
	}
	s.apply(t, service("people", "app", s.backends["os1-a"]), httpRoute("people", "broken", "people.example.com", to("nobody")))
	want := v1.Problem{
		Severity: v1.SeverityError, Subject: "HTTPRoute people/broken", Reason: "BackendNotFound",
		Message: "spec.rules[0].backendRefs[0].name: Service people/nobody not found",
	}
	s.awaitProblem(t, want)
	out = show()
	if _, problems, _ := strings.Cut(out, "\nProblems (1)\n"); problems != fmt.Sprintf("  error  %s: %s\n         %s\n", want.Subject, want.Reason, want.Message) {
		t.Errorf("status names more or less than the one problem:\n%s", out)
	}
	status, raw, errs := s.run(t, s.plane.Machine, "status", "-o", "json")
	var shown v1.Status
	if err := json.Unmarshal([]byte(raw), &shown); status != 0 || err != nil {
		t.Fatalf("status -o json ended with %d: %v: %s", status, err, errs)
	}
	if !slices.Equal(shown.Problems, []v1.Problem{want}) {
		t.Errorf("status -o json has the problems %+v, want %+v", shown.Problems, want)
	}
	if status, raw, _ := s.run(t, s.plane.Machine, "status", "-o", "yaml"); status != 0 || wantText(raw, "problems:", "reason: BackendNotFound") != "" {
		t.Errorf("status -o yaml ended with %d:\n%s", status, raw)
	}
	if status, _, errs := s.run(t, s.plane.Machine, "status", "-o", "xml"); status != 2 {
		t.Errorf("status -o xml ended with %d: %s", status, errs)
	}
	s.apply(t, httpRoute("people", "broken", "people.example.com", to("app")))
	s.awaitNoProblem(t)
}

// TestSupportBundleHoldsNoSecret looks for secrets in every file of a bundle.
func TestSupportBundleHoldsNoSecret(t *testing.T) {
	s := shared(t)
	s.namespace(t, "bundle")
	const secret = "the-teams-own-secret-4711"
	s.apply(t, fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: bundle}\nstringData: {password: %s}\n", secret))
	_, token, _ := s.run(t, s.plane.Machine, "token", "create", "--kubeconfig", s.plane.Kubeconfig(), "--machine", "bundled")
	parts := strings.Split(token, ".")
	if len(parts) != 4 {
		t.Fatalf("token create prints %q", token)
	}
	admin, err := os.ReadFile(s.plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	hidden := []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), parts[2], "PRIVATE KEY", base64.StdEncoding.EncodeToString([]byte("-----BEGIN PRIVATE"))[:20]}
	for line := range strings.Lines(string(admin)) {
		if _, data, ok := strings.Cut(line, "client-key-data: "); ok {
			hidden = append(hidden, strings.TrimSpace(data)[:60])
		}
	}
	if len(hidden) != 6 {
		t.Fatal("the kubeconfig holds no key: look elsewhere for what must stay hidden")
	}

	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	status, out, errs := s.run(t, s.plane.Machine, "support-bundle", "--kubeconfig", s.plane.Kubeconfig(), "--file", file)
	if status != 0 || !strings.Contains(out+errs, "wrote "+file) {
		t.Fatalf("support-bundle ended with %d: %s%s", status, out, errs)
	}
	// The plane's machine has no agent; the bundle says so and has the rest.
	if wrong := wantText(errs, "missing: agent/healthz.txt: "); wrong != "" {
		t.Error(wrong)
	}
	files := readBundle(t, file)
	names := slices.Sorted(maps.Keys(files))
	for _, want := range []string{"version.txt", "index.txt", "plane/status.json", "plane/metrics.txt", "resources/httproutes.yaml", "resources/machines.yaml"} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "/"+want) && len(files[n]) > 0 }) {
			t.Errorf("the bundle has no %s: %v", want, names)
		}
	}
	for name, content := range files {
		for _, h := range hidden {
			if strings.Contains(content, h) {
				t.Errorf("%s holds %q", name, h)
			}
		}
	}
	if all := strings.Join(slices.Collect(maps.Values(files)), "\n"); !strings.Contains(all, newsHost) {
		t.Errorf("the bundle does not speak of %s", newsHost)
	}
}

func readBundle(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}
