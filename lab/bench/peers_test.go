package bench

import (
	"testing"
	"time"

	"fairlead.dev/lab/load"
)

func TestReadWrk(t *testing.T) {
	rate, err := readWrk(`Running 1s test @ http://127.0.0.1:8080/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   493.27us  211.30us   8.60ms   92.41%
    Req/Sec    64.31k     2.11k   66.90k    72.73%
  70256 requests in 1.10s, 10.12MB read
  Socket errors: connect 0, read 32, write 0, timeout 0
Requests/sec:  63876.51
Transfer/sec:      9.20MB
`)
	if err != nil || rate != 63876.51 {
		t.Errorf("read %g (%v)", rate, err)
	}
	for _, bad := range []string{
		"", "  Socket errors: connect 3, read 0, write 0, timeout 0\nRequests/sec: 1", "  Socket errors: connect 0, read 0, write 0, timeout 1\nRequests/sec: 1",
		"  Socket errors: connect 0, read 1, write 0, timeout 0\n  Non-2xx or 3xx responses: 5\nRequests/sec: 1",
	} {
		if _, err := readWrk(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestPeersAreRelatedToDirect(t *testing.T) {
	r := PeersResult{Met: true, Rows: []PeerRow{
		{Name: direct, Kind: closePeers, Requests: 100},
		{Name: direct, Kind: keptPeers, Requests: 1000},
		{Name: "XDP, NAT", Kind: closePeers, Requests: 90, LBCPU: 20},
		{Name: "XDP, NAT", Kind: keptPeers, Requests: 900, LBCPU: 3},
		{Name: "HAProxy, TCP", Kind: closePeers, Requests: 50, LBCPU: 30},
		{Name: "HAProxy, TCP", Kind: keptPeers, Requests: 600, LBCPU: 10},
	}}
	r.compare()
	if r.Rows[2].Ratio != 0.9 || r.Rows[5].Ratio != 0.6 || !r.Met {
		t.Errorf("got %+v", r)
	}
	r.Rows[3].LBCPU = 10 // not below, of one kind only
	if r.compare(); r.Met {
		t.Error("the goal is met though a peer takes no more")
	}
}

func TestPeersAreMediansOfRounds(t *testing.T) {
	row := func(name string, rate, lb float64) PeerRow {
		return PeerRow{Name: name, Kind: keptPeers, Requests: rate, LBCPU: lb}
	}
	rows := medians([]PeerRow{row("a", 5, 30), row("b", 1, 1), row("a", 7, 10), row("b", 2, 3), row("a", 6, 20), row("b", 3, 2)})
	if len(rows) != 2 || rows[0].Name != "a" || rows[0].Requests != 6 || rows[0].LBCPU != 20 || rows[0].Least != 10 || rows[1].LBCPU != 2 || rows[1].Least != 1 {
		t.Errorf("got %+v", rows)
	}
}

// What the load balancer takes is its kernel's and its process's work, and it is an error
// to measure a machine that packets do not pass.
func TestPeerRowIsOfTheMachineThatPacketsPass(t *testing.T) {
	s := spent{host: time.Second, balancer: usage{kernel: 20 * time.Millisecond, processes: 30 * time.Millisecond, packets: 5000}, backends: usage{kernel: 10 * time.Millisecond, processes: 90 * time.Millisecond}}
	report := load.Report{Requests: 1000, OK: 1000, Elapsed: 2 * time.Second, Latency: load.Latency{P50: 100 * time.Microsecond, P90: 200 * time.Microsecond, P99: time.Millisecond, Max: 2 * time.Millisecond}}
	got := PeerRow{Name: "HAProxy, TCP", Kind: closePeers, Requests: 7}
	got.fixed(report, s)
	want := PeerRow{Name: "HAProxy, TCP", Kind: closePeers, Requests: 7, Rate: 500, LBCPU: 50, Kernel: 20, Processes: 30, Packets: 5, Backends: 100, CPU: 1000, P50: 0.1, P90: 0.2, P99: 1, Max: 2}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, c := range []struct {
		row   PeerRow
		sound bool
	}{
		{got, true},
		{PeerRow{Name: "XDP, NAT", Packets: 2, Kernel: 3}, true},
		{PeerRow{Name: "XDP, NAT", Packets: 0.01, Kernel: 3}, false},
		{PeerRow{Name: "XDP, NAT", Packets: 2}, false},
		{PeerRow{Name: direct, Packets: 0.01, LBCPU: 0.1}, true},
		{PeerRow{Name: direct, Packets: 2, LBCPU: 0.1}, false},
		{PeerRow{Name: direct, Packets: 0.01, LBCPU: 3}, false},
	} {
		if err := c.row.sound(); (err == nil) != c.sound {
			t.Errorf("%+v: %v", c.row, err)
		}
	}
}
