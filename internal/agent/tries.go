package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// quietTime is how long a plane may be asked before it is said that it does not answer.
const quietTime = 750 * time.Millisecond

// tries tells how connecting to planes goes while it goes on: gRPC tries again in silence.
// Each reason is said once, until a plane has answered. The zero value says nothing. Its
// methods are safe for concurrent use.
type tries struct {
	log   *slog.Logger
	quiet time.Duration // default quietTime

	mu   sync.Mutex
	said map[string]string // address -> reason
}

func newTries(log *slog.Logger) *tries { return &tries{log: log, quiet: quietTime} }

// follow watches a connection that is being made until it stands, or the caller stops it.
func (t *tries) follow(ctx context.Context, conn *grpc.ClientConn, address string) (stop func()) {
	if t == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	silent := t.await(address)
	var side sync.WaitGroup
	side.Go(func() {
		for {
			state := conn.GetState()
			switch state {
			case connectivity.Ready, connectivity.Shutdown:
				return
			case connectivity.TransientFailure:
				silent()
				// Whoever asks for something now is told why there is no connection.
				err := conn.Invoke(ctx, healthpb.Health_Check_FullMethodName, &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
				if err != nil && ctx.Err() == nil && conn.GetState() != connectivity.Ready {
					t.say(address, explainConnection(err))
				}
			}
			if !conn.WaitForStateChange(ctx, state) {
				return
			}
		}
	})
	return func() {
		cancel()
		silent()
		side.Wait()
	}
}

// await says that a plane does not answer, unless it is stopped soon.
func (t *tries) await(address string) (stop func()) {
	if t == nil {
		return func() {}
	}
	timer := time.AfterFunc(t.quiet, func() { t.say(address, "no answer for "+t.quiet.String()) })
	return func() { timer.Stop() }
}

func (t *tries) say(address, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said[address] == reason {
		return
	}
	if t.said == nil {
		t.said = map[string]string{}
	}
	t.said[address] = reason
	t.log.Warn("cannot reach the plane yet; retrying", "plane", address, "error", reason)
}

// answered forgets what was said: the next time is another one.
func (t *tries) answered() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = nil
}
