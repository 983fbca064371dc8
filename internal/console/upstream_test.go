package console

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

func upstreamRows() []v1.Upstream {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	conditions := func(reachable, current string) []v1.UpstreamCondition {
		all := []v1.UpstreamCondition{
			{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "Spec and credentials are usable."},
			{Type: "Reachable", Status: "True", Reason: "Answers", Message: "The API answers.", Since: now.Add(-time.Hour)},
			{Type: "Current", Status: "True", Reason: "Current", Message: "What is in effect is what the upstream has.", Since: now.Add(-time.Minute)},
		}
		if reachable != "" {
			all[1].Status, all[1].Reason, all[1].Message = "False", reachable, "no route to host"
		}
		if current != "" {
			all[2].Status, all[2].Reason, all[2].Message = "False", current, "Much less than before."
		}
		return all
	}
	return []v1.Upstream{
		{Name: "gone", Deleted: true, Used: []string{"team01/gone-app"}, Conditions: []v1.UpstreamCondition{}, Replicated: v1.UpstreamCounts{Services: 2, Endpoints: 3}, Refusals: []v1.UpstreamRefusal{}},
		{
			Name: "up01", Type: "Kubernetes", Conditions: conditions("", "LossHeld"), Seen: v1.UpstreamCounts{Services: 2, Endpoints: 8}, Replicated: v1.UpstreamCounts{Services: 5, Endpoints: 20},
			Held: v1.UpstreamCounts{Services: 3, Endpoints: 12}, Refused: 3, LastContact: now.Add(-time.Second), LastSweep: now.Add(-2 * time.Minute), Lag: time.Second,
			Refusals: []v1.UpstreamRefusal{{Object: "Service team01/db", Reason: "NoPorts", Message: "it has no port"}, {Object: "Service team02/x", Reason: "Namespace", Message: "namespace team02 does not exist"}},
			Requests: v1.UpstreamRequests{Answers: map[string]uint64{"2xx": 12, "none": 1}, Bytes: 3456, Throttled: 1}, WritesQueued: 4,
			Changes: []v1.Passage{
				{Upstream: "up01", Service: "team01/app", Seen: now, Decided: now.Add(time.Millisecond), Published: now.Add(3 * time.Millisecond), Revision: 42, InForce: now.Add(90 * time.Millisecond)},
				{Upstream: "up01", Service: "team01/idle", Seen: now, Decided: now, Published: now, Unused: true},
				{Upstream: "up01", Service: "team01/held", Seen: now},
			},
		},
		{Name: "up02", Type: "OpenStack", Conditions: conditions("Unreachable", "Stale"), Refusals: []v1.UpstreamRefusal{}},
		{Name: "up03", Type: "OpenStack", Conditions: conditions("", ""), Refusals: []v1.UpstreamRefusal{}},
	}
}

func TestUpstreams(t *testing.T) {
	var asked string
	c := serving(t, Config{Upstreams: func(_ context.Context, name string) ([]model.UpstreamStatus, error) {
		if asked = name; name == "nobody" {
			return nil, None("there is no Upstream nobody")
		}
		return as[[]model.UpstreamStatus](t, upstreamRows()), nil
	}})
	for _, name := range []string{"", "a b&c"} {
		if got, err := c.Upstreams(t.Context(), name); err != nil || asked != name || !reflect.DeepEqual(got, upstreamRows()) {
			t.Errorf("asked for %q: %+v, %v", asked, got, err)
		}
	}
	if _, err := c.Upstreams(t.Context(), "nobody"); !errors.Is(err, ErrNone) {
		t.Errorf("of nobody: %v", err)
	}
	if _, err := serving(t, Config{}).Upstreams(t.Context(), ""); !errors.Is(err, ErrNone) {
		t.Errorf("of an agent: %v", err)
	}
}

func TestWriteUpstreams(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const want = `NAME  TYPE        REACHABLE    CURRENT   SINCE  SERVICES  HELD  ENDPOINTS  REFUSED  CONTACT  SWEEP
gone  deleted     -            -         -      2 left    -     3          -        -        -
up01  Kubernetes  yes          LossHeld  1m0s   5/2       3     20         3        1s       2m0s
up02  OpenStack   Unreachable  Stale     1h0m   0/0       0     0          0        -        -
up03  OpenStack   yes          yes       1m0s   0/0       0     0          0        -        -
`
	var b bytes.Buffer
	if err := WriteUpstreams(&b, upstreamRows(), now); err != nil || b.String() != want {
		t.Errorf("%v, and\n%s", err, b.String())
	}
	b.Reset()
	if err := WriteUpstreams(&b, nil, now); err != nil || b.String() != "no upstream: there is no Upstream in the API\n" {
		t.Errorf("of none: %v, and\n%s", err, b.String())
	}
}

func TestWriteUpstream(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, want := range []string{`
gone, deleted: 2 Services with 3 endpoints are left
  something routes to 1 of them: change the routes, or run ` + "`fairlead upstream confirm gone`" + `
    Service team01/gone-app
`, `
up01, Kubernetes
  Accepted   true, Accepted            Spec and credentials are usable.
  Reachable  true for 1h0m, Answers    The API answers.
  Current    false for 1m0s, LossHeld  Much less than before.
  seen        2 services, 8 endpoints
  in effect   5 services, 20 endpoints
  held        3 services, 12 endpoints
  contact     1s ago
  full list   2m0s ago
  requests    12 2xx, 1 none, 3456 bytes; 1 waited because the API asked for fewer
  writes due  4

Left out (3)
  Service team01/db  NoPorts  it has no port
  2 more; --all shows the first 1,000

Last changes
  SEEN                      SERVICE      DECIDED  PUBLISHED  IN FORCE  REVISION
  2026-01-02T03:04:05.000Z  team01/app   +1ms     +3ms       +90ms     42
  2026-01-02T03:04:05.000Z  team01/idle  +0s      unused     -         -
`} {
		var b bytes.Buffer
		if err := WriteUpstream(&b, upstreamRows()[i], UpstreamOptions{Now: now, MostRefusals: 1, MostChanges: 2}); err != nil || b.String() != want[1:] {
			t.Errorf("%v, and\n%s", err, b.String())
		}
	}
}

func TestDiscoveredText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, d := range map[string]v1.Discovered{
		"Service team01/app of Upstream up01":                                                                                    {},
		"Service team01/app of Upstream up01, listed 1m5s ago; the upstream answered 3s ago":                                     {Age: 65 * time.Second, Contact: 3 * time.Second},
		"Service team01/app of Upstream up01, listed 3s ago; the upstream does not answer since 2026-01-02T03:04:05Z":            {Age: 3 * time.Second, Contact: time.Second, Failing: at},
		"Service team01/app of Upstream up01, held since 2026-01-02T03:04:05Z: the upstream does not list it like this any more": {Held: at},
	} {
		d.Upstream, d.Object = "up01", "Service team01/app"
		if got := discoveredText(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := discoveredText(v1.Discovered{Upstream: "up01"}); got != "a service of Upstream up01" {
		t.Errorf("of an unknown object: %q", got)
	}
}
