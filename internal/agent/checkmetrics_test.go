package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/internal/model"
)

// countedChecker is a Checker that has found something.
type countedChecker struct{}

func (countedChecker) Run(context.Context) error           { return nil }
func (countedChecker) Set([]model.Check)                   {}
func (countedChecker) Result(string) (r model.CheckResult) { return r }
func (countedChecker) Results() []model.CheckResult {
	return []model.CheckResult{{ID: "a", Health: model.Healthy}, {ID: "b", Health: model.Unhealthy}, {ID: "c", Health: model.Unhealthy}}
}

func (countedChecker) Figures() ([]model.CheckFigures, int) {
	return []model.CheckFigures{
		{Kind: model.CheckHTTP, Ended: map[string]uint64{"good": 3, "answer": 1}, Seconds: 2.5, Within: map[float64]uint64{0.1: 3, 1: 4}},
	}, 7
}

func TestChecksAreCounted(t *testing.T) {
	c := newCheckCollector(newChecks(Config{Checking: Checking{Checker: countedChecker{}}}))
	want := `
# HELP fairlead_agent_check_probe_seconds Duration of probes, by kind of check.
# TYPE fairlead_agent_check_probe_seconds histogram
fairlead_agent_check_probe_seconds_bucket{kind="HTTP",le="0.1"} 3
fairlead_agent_check_probe_seconds_bucket{kind="HTTP",le="1"} 4
fairlead_agent_check_probe_seconds_bucket{kind="HTTP",le="+Inf"} 4
fairlead_agent_check_probe_seconds_sum{kind="HTTP"} 2.5
fairlead_agent_check_probe_seconds_count{kind="HTTP"} 4
# HELP fairlead_agent_check_probes_total Finished probes, by kind of check and result: good, or the kind of failure.
# TYPE fairlead_agent_check_probes_total counter
fairlead_agent_check_probes_total{kind="HTTP",result="answer"} 1
fairlead_agent_check_probes_total{kind="HTTP",result="good"} 3
# HELP fairlead_agent_check_probes_under_way Probes under way.
# TYPE fairlead_agent_check_probes_under_way gauge
fairlead_agent_check_probes_under_way 7
# HELP fairlead_agent_checks Backends that this machine checks, by its own result.
# TYPE fairlead_agent_checks gauge
fairlead_agent_checks{health="healthy"} 1
fairlead_agent_checks{health="unhealthy"} 2
fairlead_agent_checks{health="unknown"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
