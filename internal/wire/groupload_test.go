package wire

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func TestGroupLoadsAreRead(t *testing.T) {
	want := []model.GroupLoad{{Group: "team/app/80~1f", Age: time.Second, Backends: []model.BackendLoad{
		{Address: netip.MustParseAddrPort("10.0.0.1:80"), Requests: 9, Succeeded: 5, Failed: 1, InFlight: 3, Timed: 6, Micros: 777, Named: true},
		{Address: netip.MustParseAddrPort("[2001:db8::1]:443"), Requests: 1},
	}}}
	words := GroupLoads(want)
	words[0].Backends = append(words[0].Backends, &agentv1.BackendLoad{Address: []byte{1, 2, 3}, Port: 80})
	if got := GroupLoadsOf(words); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
