package load

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
	"fairlead.dev/lab/backend"
)

// This test binary, started again with this variable, is a backend that listens
// on the address in it.
const asBackend = "FAIRLEAD_LOAD_TEST_BACKEND"

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	if address := os.Getenv(asBackend); address != "" {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		defer stop()
		l, err := net.Listen("tcp", address)
		if err == nil {
			err = backend.Serve(ctx, backend.New("real"), time.Second, l)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A real backend in a machine of its own is killed while requests run, and comes
// back: what was lost is counted by kind, and when it was back is told.
func TestKilledBackendInALab(t *testing.T) {
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	l, err := lab.Up(t.Context(), lab.Topology{Name: "kill", Machines: []lab.MachineSpec{{Name: "client"}, {Name: "server"}}},
		lab.Options{Dir: filepath.Join(t.TempDir(), "labs")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	client, server := l.Machine("client"), l.Machine("server")
	address := fmt.Sprintf("[%s]:80", server.Addr6())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := func() *lab.Process {
		t.Helper()
		p, err := server.Start(ctx, lab.ProcessSpec{Name: "backend", Argv: []string{os.Args[0]}, Env: []string{asBackend + "=" + address}})
		if err != nil {
			t.Fatal(err)
		}
		for {
			if r, err := Do(ctx, Config{Address: address, Dial: client.Dial, Requests: 1}); err != nil {
				t.Fatalf("the backend does not answer: %v", err)
			} else if r.OK == 1 {
				return p
			}
		}
	}
	p := start()

	var before, during, after atomic.Int64
	var event atomic.Pointer[time.Time] // when the backend was killed
	var restarted atomic.Bool
	enough := make(chan bool, 1)
	run, err := Start(ctx, Config{Address: address, Dial: client.Dial, Concurrency: 4, Rate: 2000, OnResult: func(r Result) {
		switch {
		case event.Load() == nil:
			before.Add(1)
		case !restarted.Load():
			// On a busy machine requests are sent late: those that were due before fail too.
			if r.Kind != "" && r.Start.After(*event.Load()) {
				during.Add(1)
			}
		case after.Add(1) == 200:
			enough <- true
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	await := func(n *atomic.Int64, want int64) {
		t.Helper()
		for n.Load() < want {
			select {
			case <-ctx.Done():
				t.Fatal("the load does not run")
			case <-time.After(time.Millisecond):
			}
		}
	}
	await(&before, 200)
	at := time.Now()
	event.Store(&at)
	p.Kill9()
	await(&during, 50)
	start()
	restarted.Store(true)
	<-enough
	r := run.Stop()

	if r.Failed < 50 || r.OK < 200 || r.Requests != r.OK+r.Failed {
		t.Errorf("%s: want at least 50 failed and 200 well", r)
	}
	if r.Answers["real"] != r.OK {
		t.Errorf("answers are %v, want all %d from the real backend", r.Answers, r.OK)
	}
	var sum int
	for kind, f := range r.Failures {
		sum += f.Count
		if kind != KindConnect && kind != KindReset {
			t.Errorf("%d failures of kind %s: %s", f.Count, kind, f.First)
		}
	}
	if sum != r.Failed || r.Failures[KindConnect].Count == 0 {
		t.Errorf("failures are %v, want %d with refused connections among them", r.Failures, r.Failed)
	}
	if back, ok := r.Back(at); !ok || back <= 0 || back > r.Elapsed {
		t.Errorf("back after %s (%v) of %s", back, ok, r.Elapsed)
	}
	t.Log(r)
}
