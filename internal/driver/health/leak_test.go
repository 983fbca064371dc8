package health

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// sockets are the descriptors that the process has open.
func sockets(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	return len(list)
}

// TestFailuresLeaveNothing lets 1,000 checks fail in every way and holds that no socket, no
// goroutine and little memory is left, and that the figures have every probe.
func TestFailuresLeaveNothing(t *testing.T) {
	config := certificate(t)
	bad := []netip.AddrPort{
		listen(t, silent),
		deaf(t),
		listen(t, func(c net.Conn) { _, _ = bufio.NewReader(c).ReadString('\n') }),
		listen(t, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }),
		listen(t, func(c net.Conn) {
			var err error
			for junk := make([]byte, 1<<16); err == nil; {
				_, err = c.Write(junk)
			}
		}),
		serve(t, nil, h2c, func(w http.ResponseWriter, q *http.Request) {
			for q.Context().Err() == nil {
				if _, err := io.WriteString(w, "endless"); err != nil {
					return
				}
			}
		}),
		serve(t, config, http2s, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
	}
	kinds := []model.CheckKind{model.CheckHTTP, model.CheckHTTP2, model.CheckHTTPS, model.CheckTLS, model.CheckGRPC, model.CheckGRPCS, model.CheckUDP}
	var ended atomic.Int64
	p := New(Config{Limit: 64, Changed: func() { ended.Add(1) }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	const checks = 1000
	batch := func(n int) {
		var list []model.Check
		for i := range n {
			list = append(list, model.NewCheck(bad[i%len(bad)], model.HealthCheck{
				Kind: kinds[i/len(bad)%len(kinds)], Interval: time.Hour, Timeout: 50*time.Millisecond + time.Duration(i), Send: []byte("ping"), Expect: []byte("pong"), Codes: [][2]uint16{{299, 299}},
			}))
		}
		want := ended.Load() + int64(n)
		p.Set(list)
		wait(t, func() bool { return ended.Load() >= want })
		p.Set(nil)
	}
	batch(100) // what is made once is there
	runtime.GC()
	fds, routines := sockets(t), runtime.NumGoroutine()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	batch(checks)
	// The servers of the test may need a moment to see that nobody is there any more.
	wait(t, func() bool { return sockets(t) <= fds+5 && runtime.NumGoroutine() <= routines+20 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("%d bytes are held after %d failing checks", grown, checks)
	}
	list, underWay := p.Figures()
	var sum uint64
	for _, f := range list {
		for how, n := range f.Ended {
			if sum += n; how == Good && f.Kind != model.CheckTLS {
				t.Errorf("%d probes over %s were well", n, f.Kind)
			}
		}
	}
	if sum < checks+100 || underWay != 0 {
		t.Errorf("figures have %d probes, and %d under way", sum, underWay)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func wait(t *testing.T, is func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it does not come to that")
		}
	}
}
