package main

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// number is the number in the first submatch of a pattern in a file.
func number(t *testing.T, path, pattern string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has nothing like %s", path, pattern)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Second
}

// What ends an agent by force gives it the time that an orderly stop takes at most: three times the
// Machine's drain time, --drain-time, and what the guide and the chart add to these.
func TestTimeToStop(t *testing.T) {
	const guide, chart = "../../docs/guides/operate.md", "../../deploy/chart/fairlead/templates/agent.yaml"
	rest := drainStopTime(0, 0)
	if got := drainStopTime(7*time.Second, 100*time.Second); got != rest+3*7*time.Second+100*time.Second {
		t.Errorf("a stop takes %s, want %s and three times the drain time, and --drain-time once", got, rest)
	}
	for path, pattern := range map[string]string{
		guide: "three times the machine's drain time, once `--drain-time`, and (\\d+) s",
		chart: `terminationGracePeriodSeconds: \{\{ add .Values.agent.preStopSeconds \(mul 3 \(max 30 .Values.agent.drainSeconds\)\) .Values.agent.drainSeconds (\d+) \}\}`,
	} {
		if n := number(t, path, pattern); n != rest.Truncate(time.Second) {
			t.Errorf("%s adds %s, and a stop takes %s beside the drain times", path, n, rest)
		}
	}
	const unit = "../../deploy/systemd/fairlead-agent.service"
	if n := number(t, unit, `\nTimeoutStopSec=(\d+)\n`); n < drainStopTime(30*time.Second, 30*time.Second) {
		t.Errorf("%s has TimeoutStopSec=%s, and a stop takes %s with the drain times that are the default", unit, n, drainStopTime(30*time.Second, 30*time.Second))
	}
	const systemd = 90 * time.Second // DefaultTimeoutStopSec
	if got := leaveStopTime(); got > systemd {
		t.Errorf("a stop with --on-stop=leave takes %s, and the units leave it %s", got, systemd)
	}
}
