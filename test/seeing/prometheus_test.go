package seeing

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/dashboard"
	"fairlead.dev/lab"
	"fairlead.dev/lab/program"
)

// scrapes come as often as agents whose proxy hangs answer.
const scrapes = "3500ms"

// prometheus is a Prometheus with the scrape configuration of the guide, and our rules.
type prometheus struct {
	site    *site
	http    *http.Client
	process *lab.Process
}

// hold is how long an alert holds before it fires, and window that of its rates.
const (
	hold   = 4 * time.Second
	window = 24 * time.Second
)

// scrapeConfig is the one that docs/guides/monitoring.md has, with the lab's addresses.
func (s *site) scrapeConfig(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "guides", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(# prometheus.yml.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("the guide has no prometheus.yml")
	}
	config := string(block[1])
	for from, to := range map[string]string{
		"plane-2.example.com:7080": s.Lab.Machine("plane").Addr4().String() + ":7090",
		"plane-1.example.com":      s.Lab.Machine("plane").Addr4().String(), "edge-1.example.com": s.Lab.Machine("edge-1").Addr4().String(),
		"edge-2.example.com": s.Lab.Machine("edge-2").Addr4().String(), "15s": scrapes, "30s": "1s", "/etc/prometheus/fairlead": ".",
	} {
		if !strings.Contains(config, from) {
			t.Errorf("the guide's prometheus.yml has no %s", from)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	return config
}

func (s *site) startPrometheus(t *testing.T) *prometheus {
	t.Helper()
	m := s.Lab.Machine("monitor")
	dir, err := m.Dir("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"prometheus.yml": s.scrapeConfig(t), dashboard.RulesFile: string(dashboard.Rules(dashboard.RuleOptions{Hold: hold, Window: window})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := program.Prometheus.Find()
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{site: s, http: m.HTTPClient()}
	p.process, err = m.Start(t.Context(), lab.ProcessSpec{Name: "prometheus", Dir: dir, Argv: []string{
		found.Path, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:9090",
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask asks Prometheus' API and decodes the data of the answer.
func (p *prometheus) ask(ctx context.Context, path string, q url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9090/api/v1/"+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := p.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return fmt.Errorf("decode Prometheus' answer: %w", err)
	}
	if body.Status != "success" {
		return fmt.Errorf("prometheus says %s: %s", body.Status, body.Error)
	}
	return json.Unmarshal(body.Data, into)
}

// sample is one result of a query: its labels, and time and value.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query returns what an expression of a panel has at the moment, with all choices made.
func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	for from, to := range map[string]string{"$__rate_interval": "20s", "$instance": ".*", "$namespace": ".*", "$upstream": ".*"} {
		expr = strings.ReplaceAll(expr, from, to)
	}
	var data struct{ Result []sample }
	return data.Result, p.ask(ctx, "query", url.Values{"query": {expr}}, &data)
}

// alerts are those that fire at the moment, by name.
func (p *prometheus) alerts(ctx context.Context) (map[string]bool, error) {
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err := p.ask(ctx, "alerts", nil, &data); err != nil {
		return nil, err
	}
	firing := map[string]bool{}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			firing[a.Labels["alertname"]] = true
		}
	}
	return firing, nil
}
