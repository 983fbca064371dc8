package seeing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/internal/dashboard"
)

// patience is how long all panels, and all alerts of a fault, may take: it tells what never comes from what is slow.
const patience = 3 * time.Minute

// TestSeeing has a real Prometheus read a lab with traffic. Every variable and every panel has data, every alert
// fires when its cause is there, and ends with it.
func TestSeeing(t *testing.T) {
	s := newSite(t)
	s.traffic(t, "/", "/far", "/again", "/", "/", "/", impatient, "/")
	s.await(t, "all targets to be read, and traffic to pass", func(ctx context.Context) error {
		up, err := s.prometheus.query(ctx, `up == 1`)
		if err != nil || len(up) != 4 {
			return fmt.Errorf("%d targets are up: %w", len(up), err)
		}
		ok, err := s.prometheus.query(ctx, `sum(rate(fairlead_requests_by_namespace_total{namespace="shop",class="2xx"}[20s])) > 0`)
		if err == nil && len(ok) == 0 {
			err = errors.New("no request has passed")
		}
		return err
	})
	s.panels(t)
	s.awaitCalm(t, "nothing to fire")
	s.alerts(t)
}

// question is something that a page asks.
type question struct {
	name string
	ask  func(ctx context.Context) error
}

var metricName = regexp.MustCompile(`\bfairlead_[a-z0-9_]+`)

// reference is the text that lists every metric.
var reference = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "reference", "metrics.md"))
	return string(text), err
})

// future says that an expression asks for a metric that no program has yet: the reference does not list it, and
// the tests of internal/dashboard have the list of such metrics, which shrinks to nothing.
func future(t *testing.T, expr string) bool {
	t.Helper()
	text, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metricName.FindAllString(expr, -1) {
		if !strings.Contains(text, "| `"+strings.TrimSuffix(m, "_bucket")+"` |") {
			return true
		}
	}
	return false
}

// panels asks every variable and every query of all dashboards, until all have data.
func (s *site) panels(t *testing.T) {
	t.Helper()
	var questions []question
	for _, d := range dashboard.All() {
		for _, v := range d.Variables {
			questions = append(questions, question{d.Name + ": values of " + v.Name, func(ctx context.Context) error {
				var values []string
				err := s.prometheus.ask(ctx, "label/"+v.Of+"/values", url.Values{"match[]": {v.Metric}}, &values)
				if err == nil && len(values) == 0 {
					err = errors.New("there is none")
				}
				return err
			}})
		}
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				for _, q := range p.Queries {
					if !future(t, q.Expr) {
						questions = append(questions, question{d.Name + ": " + p.Title + ": " + q.Legend, func(ctx context.Context) error { return s.hasData(ctx, q.Expr) }})
					}
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var missing error
	n := 0
	err := s.Await(ctx, "panels to have data", func(ctx context.Context) error {
		n++
		s.change(t, n)
		var faults error
		var left []question
		for _, q := range questions {
			if err := q.ask(ctx); err != nil {
				left, faults = append(left, q), errors.Join(faults, fmt.Errorf("%s: %w", q.name, err))
			}
		}
		if len(left) > 0 && ctx.Err() == nil {
			questions, missing = left, faults
		}
		return faults
	})
	if err != nil {
		t.Fatal(err, missing)
	}
}

// hasData is nil if an expression has a result that is a number.
func (s *site) hasData(ctx context.Context, expr string) error {
	found, err := s.prometheus.query(ctx, expr)
	if err == nil && !slices.ContainsFunc(found, func(f sample) bool { return f.Value[1] != "NaN" }) {
		err = fmt.Errorf("%s has %d results, none a number", expr, len(found))
	}
	return err
}

// awaitFor is await with less patience: alerts come within half a minute.
func (s *site) awaitFor(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last error
	if err := s.Await(ctx, what, func(ctx context.Context) error {
		err := try(ctx)
		if ctx.Err() == nil {
			last = err
		}
		return err
	}); err != nil {
		t.Fatal(err, last)
	}
}

func (s *site) await(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	if err := s.Await(t.Context(), what, try); err != nil {
		t.Fatal(err)
	}
}
