package wire

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func TestMachineGoesThereAndBack(t *testing.T) {
	m := model.Machine{Name: "edge-1", Cordoned: true, DrainSeconds: 45}
	c := MachineConfig(m, 10*time.Second)
	if got := c.GetTimeToLive().AsDuration(); got != 10*time.Second {
		t.Errorf("time to live is %s", got)
	}
	if got := Machine("edge-1", c); !reflect.DeepEqual(got, m) {
		t.Errorf("came back as %+v, want %+v", got, m)
	}
}

func TestMachineOfOddMessages(t *testing.T) {
	if got := Machine("m", nil); !reflect.DeepEqual(got, model.Machine{Name: "m"}) {
		t.Errorf("of nothing: %+v", got)
	}
	for d, want := range map[time.Duration]uint32{-time.Second: 0, time.Millisecond: 1, 1500 * time.Millisecond: 2} {
		if got := Machine("m", &agentv1.MachineConfig{DrainTime: durationpb.New(d)}).DrainSeconds; got != want {
			t.Errorf("%s is %d seconds, want %d", d, got, want)
		}
	}
}

func TestEveryProxyStateHasAName(t *testing.T) {
	seen := map[string]bool{}
	for n := range agentv1.Proxy_State_name {
		s := Proxy(&agentv1.Proxy{State: agentv1.Proxy_State(n)}).State
		if seen[s] {
			t.Errorf("two states are %q", s)
		}
		seen[s] = true
	}
	if got := Proxy(&agentv1.Proxy{State: 99}).State; got != "unknown" {
		t.Errorf("a state of the future is %q", got)
	}
	if got := Proxy(nil).State; got != "unknown" {
		t.Errorf("no proxy is %q", got)
	}
}

func TestRefused(t *testing.T) {
	got := Refused([]*agentv1.Problem{
		{Kind: agentv1.Problem_KIND_REFUSED, TypeUrl: "t", Name: "http-80/1/a.example", Message: "bad regex"},
		{Kind: agentv1.Problem_KIND_WAITING, TypeUrl: "t", Name: "http-80/2/b.example"},
	})
	want := []model.RefusedItem{
		{Kind: "refused", Type: "t", Name: "http-80/1/a.example", Message: "bad regex"},
		{Kind: "waiting", Type: "t", Name: "http-80/2/b.example"},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v", got)
	}
}
