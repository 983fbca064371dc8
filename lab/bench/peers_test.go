package bench

import (
	"math"
	"testing"
	"time"
)

func TestReadWrk(t *testing.T) {
	row, err := readWrk(`Running 1s test @ http://127.0.0.1:8080/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   493.27us  211.30us   8.60ms   92.41%
    Req/Sec    64.31k     2.11k   66.90k    72.73%
  Latency Distribution
     50%  466.00us
     75%  525.00us
     90%  602.00us
     99%    1.05ms
  70256 requests in 1.10s, 10.12MB read
Requests/sec:  63876.51
Transfer/sec:      9.20MB
`, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9*want }
	if !near(row.Requests, 63876.51) || !near(row.CPU, 2e6/70256) || !near(row.P50, 0.466) || !near(row.P90, 0.602) || !near(row.P99, 1.05) || !near(row.Max, 8.6) {
		t.Errorf("read %+v", row)
	}
	for _, bad := range []string{"", "1 requests in 1s\nRequests/sec: 1\n  Socket errors: connect 3, read 0, write 0, timeout 0", "1 requests in 1s\nRequests/sec: 1\n  Non-2xx or 3xx responses: 5"} {
		if _, err := readWrk(bad, 0); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestPeersAreRelatedToDirect(t *testing.T) {
	r := PeersResult{Met: true, Rows: []PeerRow{
		{Name: "direct", Kind: "close", Requests: 100, CPU: 10},
		{Name: "XDP, NAT", Kind: "close", Requests: 90, CPU: 12},
		{Name: "HAProxy, TCP", Kind: "close", Requests: 50, CPU: 30},
	}}
	r.compare()
	if r.Rows[1].Ratio != 0.9 || r.Rows[1].LBCPU != 2 || r.Rows[2].LBCPU != 20 || !r.Met {
		t.Errorf("got %+v", r)
	}
	r.Rows[1].CPU = 31
	if r.compare(); r.Met {
		t.Error("the goal is met though a peer takes less")
	}
}
