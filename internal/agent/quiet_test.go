package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"fairlead.dev/internal/gate/gatetest"
)

// logLines keeps what an agent logs at level info and above.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestAgentLogIsQuiet holds that an agent that has its configuration logs nothing while nothing changes, and nothing for each
// change either: the plane says what changes.
func TestAgentLogIsQuiet(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	var log logLines
	m.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	m.start()
	c, _ := p.call()
	c.must(t, whole(t, at(2, 5), 1)...)
	// reports are those that the plane got: they show that the agent looks again at everything that it reports.
	reports := func() (n int) {
		p.with(func() { n = p.reports })
		return n
	}
	eventually(t, "a report", func() bool { return reports() > 0 })
	before := log.String()
	if !strings.Contains(before, "connected to plane") {
		t.Errorf("at first it says:\n%s", before)
	}
	for i := range 20 {
		r := at(2, uint64(6+i))
		c.must(t, responseOf(t, r, gatetest.Endpoints(t, "s1", 2+i)), responseOf(t, r, checkpointAt(t, r)))
	}
	more := reports() + 2
	eventually(t, "two more reports", func() bool { return reports() >= more })
	if after := log.String(); after != before {
		t.Errorf("it says more:\n%s", strings.TrimPrefix(after, before))
	}
}
