// Package metricstest holds the reference of metrics true: what a program registers is what
// docs/reference/metrics.md lists.
package metricstest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// reference as seen from the directory of a package below internal.
const reference = "../../docs/reference/metrics.md"

// registry takes down what is registered.
type registry map[string]bool

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

// Register implements prometheus.Registerer.
func (r registry) Register(c prometheus.Collector) error {
	to := make(chan *prometheus.Desc, 100)
	c.Describe(to)
	close(to)
	for desc := range to {
		r[fqName.FindStringSubmatch(desc.String())[1]] = true
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r registry) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		_ = r.Register(c)
	}
}

// Unregister implements prometheus.Registerer.
func (registry) Unregister(prometheus.Collector) bool { return false }

// Documented fails the test unless the reference lists every metric that register registers,
// and of those whose names begin with one of the prefixes no other.
func Documented(t *testing.T, register func(prometheus.Registerer) error, prefixes ...string) {
	t.Helper()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	r := registry{}
	if err := register(r); err != nil {
		t.Fatal(err)
	}
	for name := range r {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("%s does not list %s", reference, name)
		}
	}
	rows := regexp.MustCompile("\\| `((?:" + strings.Join(prefixes, "|") + ")[a-z0-9_]+)` \\|")
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		if !r[row[1]] {
			t.Errorf("%s lists %s, which there is not", reference, row[1])
		}
	}
	if err := (names{}).ofReference(string(text)); err != nil {
		t.Errorf("%s: in OpenMetrics, %v", reference, err)
	}
	for _, row := range regexp.MustCompile("\\| `([a-z0-9_]+)` \\| counter \\|").FindAllStringSubmatch(string(text), -1) {
		if !strings.HasSuffix(row[1], "_total") {
			t.Errorf("OpenMetrics calls the counter %s %s_total", row[1], row[1])
		}
	}
	if len(r) == 0 {
		t.Error("nothing is registered")
	}
}
