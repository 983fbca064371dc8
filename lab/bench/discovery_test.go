package bench

import (
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/lab/load"
)

func TestDiscoveryOptions(t *testing.T) {
	o := DiscoveryOptions{Upstreams: 1}.complete()
	if len(o.Parts) != 3 || o.Upstreams != 3 || o.ScaleServices != 20_000 || o.Rest != 90*time.Second {
		t.Errorf("the defaults are %+v", o)
	}
	_, err := Discovery(t.Context(), DiscoveryOptions{Parts: []string{"kubernets"}})
	if err == nil || !strings.Contains(err.Error(), `no part is named "kubernets"`) {
		t.Errorf("an unknown part: %v", err)
	}
}

func TestDelayOf(t *testing.T) {
	if got, want := delayOf([]time.Duration{3e6, 1e6, 2e6}), (Delay{3, 2, 3, 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := delayOf(nil); got != (Delay{}) {
		t.Errorf("of nothing: %v", got)
	}
}

// A path counts the answers of the changing backend alone, from when it is armed.
func TestWatchedPath(t *testing.T) {
	began := time.Unix(1_000, 0)
	p := &watchedPath{changing: "pod-1"}
	p.note(load.Result{Name: "pod-1", Start: began, Latency: time.Millisecond})
	p.arm()
	p.note(load.Result{Name: "pod-0", Start: began.Add(time.Second)})
	if first, last := p.seen(); !first.IsZero() || !last.IsZero() {
		t.Errorf("answers of another backend count: %v, %v", first, last)
	}
	p.note(load.Result{Name: "pod-1", Start: began.Add(3 * time.Second), Latency: time.Millisecond})
	p.note(load.Result{Name: "pod-1", Start: began.Add(2 * time.Second)})
	if first, last := p.seen(); first != began.Add(3*time.Second+time.Millisecond) || last != first {
		t.Errorf("first %v, last %v", first, last)
	}
}

// An endpoint that drains is one of a terminating pod.
func TestClusterService(t *testing.T) {
	slice, is := clusterService("team01", "app", discoveryVIP)[1].(*discoveryv1.EndpointSlice)
	if !is || slice.Labels[discoveryv1.LabelServiceName] != "app" || !*slice.Endpoints[0].Conditions.Ready || *slice.Endpoints[0].Conditions.Terminating {
		t.Errorf("%+v", slice)
	}
	c := clusterEndpoint(discoveryVIP, false).Conditions
	if *c.Ready || !*c.Serving || !*c.Terminating {
		t.Errorf("%+v", c)
	}
}
