package metricstest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// suffixes are those of the names of samples, by the type of their family (OpenMetrics 1.0, section 5).
var suffixes = map[string][]string{
	"counter": {"_total", "_created"}, "gauge": {""}, "histogram": {"_bucket", "_count", "_sum", "_created"},
	"summary": {"", "_count", "_sum", "_created"}, "unknown": {""},
}

var (
	familyName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	aSample    = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)( \S+)?( # \{.*\} \S+( \S+)?)?$`)
)

// OpenMetrics fails the test unless a strict parser takes what is gathered as OpenMetrics.
func OpenMetrics(t *testing.T, g prometheus.Gatherer) {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, request)
	if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || !strings.HasPrefix(kind, "application/openmetrics-text") {
		t.Fatalf("answered %d, %s: %s", w.Code, kind, w.Body)
	}
	families, err := parse(w.Body.String())
	if err != nil {
		t.Error(err)
	}
	if families < 3 {
		t.Errorf("only %d families", families)
	}
}

// parse reads OpenMetrics, and says how many families there are.
func parse(text string) (families int, err error) {
	names, series := names{}, map[string]bool{}
	family, kind, sampled := "", "", false
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		word := strings.SplitN(line, " ", 4)
		switch {
		case line == "" && i == len(lines)-1:
		case line == "# EOF":
			if i != len(lines)-2 || lines[i+1] != "" {
				return families, fmt.Errorf("line %d: the end is not the end", i+1)
			}
			return families, nil
		case strings.HasPrefix(line, "#"):
			if len(word) < 3 || len(word) < 4 && word[1] != "HELP" || word[0] != "#" || !familyName.MatchString(word[2]) {
				return families, fmt.Errorf("line %d: %q describes nothing", i+1, line)
			}
			if word[2] != family || sampled {
				family, kind, sampled = word[2], "unknown", false
			}
			if word[1] != "TYPE" {
				continue
			}
			kind = word[3]
			families++
			if err := names.add(family, kind); err != nil {
				return families, fmt.Errorf("line %d: %w", i+1, err)
			}
		default:
			s := aSample.FindStringSubmatch(line)
			if s == nil {
				return families, fmt.Errorf("line %d: %q is no sample", i+1, line)
			}
			sampled = true
			if names[s[1]] != family || !slices.Contains(suffixes[kind], strings.TrimPrefix(s[1], family)) {
				return families, fmt.Errorf("line %d: %s is no sample of the %s %s", i+1, s[1], kind, family)
			}
			if key := s[1] + "{" + s[2]; series[key] {
				return families, fmt.Errorf("line %d: %s} comes twice", i+1, key)
			}
			series[s[1]+"{"+s[2]] = true
		}
	}
	return families, fmt.Errorf("there is no end")
}

// names are those that samples may have, and the family that each belongs to.
type names map[string]string

// add adds a family, whose name and names of samples are no other's.
func (n names) add(family, kind string) error {
	ends, known := suffixes[kind]
	if !known {
		return fmt.Errorf("%s is a %s, which there is not", family, kind)
	}
	if other, taken := n[family]; taken {
		return fmt.Errorf("%s is the name of a %s, and belongs to the family %s already", family, kind, other)
	}
	n[family] = family
	for _, end := range ends {
		if other, taken := n[family+end]; taken && other != family {
			return fmt.Errorf("%s%s of the %s %s belongs to the family %s already", family, end, kind, family, other)
		}
		n[family+end] = family
	}
	return nil
}

// ofReference adds the families of the table in a reference.
func (n names) ofReference(text string) error {
	for _, row := range regexp.MustCompile("\\| `([a-z0-9_]+)` \\| (counter|gauge|histogram|summary) \\|").FindAllStringSubmatch(text, -1) {
		name := row[1]
		if row[2] == "counter" {
			name = strings.TrimSuffix(name, "_total")
		}
		if err := n.add(name, row[2]); err != nil {
			return err
		}
	}
	return nil
}
