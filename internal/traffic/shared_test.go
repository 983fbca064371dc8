package traffic

import (
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// Times and bytes of a host that namespaces share are told to nobody who may see one of them only.
func TestSharedHostsTellNoTimes(t *testing.T) {
	began := time.Now()
	sample := func(at time.Time, n uint64) Sample {
		v := model.Volume{Sent: n * 1000}
		v.Seconds.Add(3, n)
		return Sample{
			At: at, Requests: map[string][]model.RequestFigures{"edge-1": {
				{Listener: "http", Host: "shared.test", Route: "HTTPRoute/mine/a/rules/0/matches/0", Classes: [model.StatusClasses]uint64{2: 1}},
				{Listener: "http", Host: "shared.test", Route: "HTTPRoute/theirs/b/rules/0/matches/0", Classes: [model.StatusClasses]uint64{2: n}},
			}},
			Totals: map[string][]model.TrafficTotal{"edge-1": {{By: string(Hosts), Name: "shared.test", Volume: v}}},
		}
	}
	times := &Times{}
	times.Add(began.Add(time.Second), &model.TapRecord{Route: "HTTPRoute/theirs/b/rules/0/matches/0", Host: "shared.test", Seconds: 3})
	for namespace, told := range map[string]bool{"mine": false, "": true} {
		top := Rates(sample(began, 10), sample(began.Add(2*time.Second), 50), Query{By: Hosts, Namespace: namespace}, times)
		if len(top.Rows) != 1 || (top.Rows[0].Timed > 0) != told || (top.Rows[0].Sent > 0) != told {
			t.Errorf("namespace %q is told %+v", namespace, top.Rows)
		}
	}
	without := sample(began.Add(2*time.Second), 50)
	without.Totals = nil
	if top := Rates(sample(began, 10), without, Query{By: Hosts, Namespace: "mine"}, times); len(top.Rows) != 1 || top.Rows[0].Timed > 0 {
		t.Errorf("it is told times of samples: %+v", top.Rows)
	}
}
