package agent

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// described takes down what is registered.
type described struct{ names map[string]bool }

var namePattern = regexp.MustCompile(`fqName: "([^"]+)"`)

// Register implements prometheus.Registerer.
func (d described) Register(c prometheus.Collector) error {
	to := make(chan *prometheus.Desc, 100)
	c.Describe(to)
	close(to)
	for desc := range to {
		d.names[namePattern.FindStringSubmatch(desc.String())[1]] = true
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (d described) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		_ = d.Register(c)
	}
}

// Unregister implements prometheus.Registerer.
func (described) Unregister(prometheus.Collector) bool { return false }

// TestMetricsAreDocumented holds that the reference lists every metric, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	d := described{map[string]bool{}}
	if _, err := newMetrics(d, &Agent{}); err != nil {
		t.Fatal(err)
	}
	for name := range d.names {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("docs/reference/metrics.md does not list %s", name)
		}
	}
	for _, row := range regexp.MustCompile(`\| \x60(fairlead_(?:agent|lb)_[a-z0-9_]+)\x60 \|`).FindAllStringSubmatch(string(text), -1) {
		if !d.names[row[1]] {
			t.Errorf("docs/reference/metrics.md lists %s, which there is not", row[1])
		}
	}
	if len(d.names) < 10 {
		t.Errorf("only %d metrics", len(d.names))
	}
}
