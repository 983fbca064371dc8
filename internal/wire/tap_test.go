package wire

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// Whatever time a machine says, what it shows can be told on.
func TestTimesOfTaps(t *testing.T) {
	late := &timestamppb.Timestamp{Seconds: 1 << 40}
	if _, err := json.Marshal(TapRecordOf(&agentv1.TapRecord{At: late})); err != nil {
		t.Error(err)
	}
	e, err := FlowEventOf(&agentv1.FlowEvent{At: late, Kind: "begin", Frontend: "tcp://192.0.2.1:80", Client: "192.0.2.9:1"})
	if err == nil {
		_, err = json.Marshal(e)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestTimeOf(t *testing.T) {
	if !timeOf(nil).IsZero() || !timeOf(&timestamppb.Timestamp{Seconds: 1 << 40}).IsZero() || timeOf(&timestamppb.Timestamp{Seconds: 1}).Unix() != 1 {
		t.Error("times are read wrongly")
	}
}
