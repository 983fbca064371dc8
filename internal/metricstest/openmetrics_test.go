package metricstest

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const good = "# HELP a Help.\n# TYPE a counter\na_total{x=\"1\\\"\",y=\"\"} 1.0\n# HELP b_seconds \n# TYPE b_seconds histogram\nb_seconds_bucket{le=\"+Inf\"} 1 # {trace_id=\"00\"} 0.2 1.5\nb_seconds_count 1\nb_seconds_sum 2.0\n# TYPE c gauge\nc 1\nc{x=\"2\"} 1\n# EOF\n"
	if families, err := parse(good); err != nil || families != 3 {
		t.Errorf("%d families, %v", families, err)
	}
	for text, says := range map[string]string{
		"# TYPE a gauge\na 1\n": "there is no end",
		"# TYPE a gauge\na 1\n# TYPE a counter\na_total 1\n# EOF\n":   "a is the name of a counter, and belongs to the family a already",
		"# TYPE a counter\na_total 1\n# TYPE a_total gauge\n# EOF\n":  "a_total is the name of a gauge, and belongs to the family a already",
		"# TYPE a_sum gauge\na_sum 1\n# TYPE a summary\na 1\n# EOF\n": "a_sum of the summary a belongs to the family a_sum already",
		"# TYPE a counter\na 1\n# EOF\n":                              "a is no sample of the counter a",
		"# TYPE a gauge\nb 1\n# EOF\n":                                "b is no sample of the gauge a",
		"# TYPE a gauge\na 1\n# TYPE b gauge\na{x=\"1\"} 1\n# EOF\n":  "a is no sample of the gauge b",
		"# TYPE a gauge\na{x=\"1\"} 1\na{x=\"1\"} 2\n# EOF\n":         "comes twice",
		"# TYPE a thing\na 1\n# EOF\n":                                "a is a thing, which there is not",
		"# TYPE a gauge\na{x=1} 1\n# EOF\n":                           "is no sample",
		"# EOF\n# TYPE a gauge\na 1\n":                                "the end is not the end",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestFamiliesOfAReference(t *testing.T) {
	if err := (names{}).ofReference("| `a_by_b` | gauge | x |\n| `a_total` | counter | x |\n"); err != nil {
		t.Error(err)
	}
	if err := (names{}).ofReference("| `a_by_b` | gauge | x |\n| `a_by_b_total` | counter | x |\n"); err == nil {
		t.Error("a gauge and a counter may have one name")
	}
}
