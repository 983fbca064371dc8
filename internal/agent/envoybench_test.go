package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // in the bootstrap
	"google.golang.org/protobuf/encoding/protojson"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/xds/envoytest"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// bench is a real Envoy behind the relay of an agent whose plane is the test.
type bench struct {
	t        *testing.T
	dir      string
	port     int
	revision uint64
	ahead    atomic.Int64 // of the real clock

	log     logged
	mends   map[string]int
	memory  *memory // what the agents wrote
	older   bool    // it is older than what Envoy runs, and that is known
	mu      sync.Mutex
	desired *desired
	relay   *relay
	envoy   *envoytest.Envoy
	stop    func() // the agent
	sampler *sampler
	layers  string // of the runtime of an Envoy that is started, after the first one
	reports string // what its bootstrap has for reports of loads
}

const listenerName, routesName = "front", "front/0"

func newBench(t *testing.T) *bench {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b := &bench{
		t: t, dir: t.TempDir(), port: port,
		memory: &memory{target: map[key]*delta.Resource{}, good: map[key]*delta.Resource{}}, mends: map[string]int{},
	}
	b.startAgent()
	t.Cleanup(func() { b.stop() })
	t.Cleanup(func() {
		if t.Failed() {
			b.outstanding()
		}
	})
	return b
}

// outstanding logs what a failed test may have waited for.
func (b *bench) outstanding() {
	b.relay.mu.Lock()
	defer b.relay.mu.Unlock()
	b.t.Logf("applied %s, problems %v", b.relay.feed.Applied(), b.relay.feed.Problems())
}

// startAgent begins with what earlier ones remembered.
func (b *bench) startAgent() {
	b.t.Helper()
	a := idle(b.t, Config{Proxy: b, Now: b.now, Log: b.log.logger(), RunDir: b.dir})
	var writing sync.Mutex
	write := func(m memoryBatch) {
		writing.Lock()
		defer writing.Unlock()
		b.memory.apply(memoryBatch{revision: m.revision, target: m.target})
		b.memory.apply(memoryBatch{revision: m.revision, good: m.good})
	}
	a.relay.remember, a.desired.remember = write, write
	a.relay.mended = func(step string) { b.mu.Lock(); b.mends[step]++; b.mu.Unlock() }
	a.relay.withholdTime = 0
	r := b.memory.remembered()
	a.relay.recall(r.good, b.older, false)
	if _, err := a.desired.restore(r.revision, r.target); err != nil {
		b.t.Fatal(err)
	}
	if err := a.relay.listen(SocketPath(b.dir)); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.relay.run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	b.desired, b.relay, b.sampler = a.desired, a.relay, a.relay.sampler
	b.stop = func() {
		cancel()
		running.Wait()
	}
}

func (b *bench) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

// skip moves the agent's clock on.
func (b *bench) skip(d time.Duration) {
	b.ahead.Add(int64(d))
	b.relay.tick()
}

// startEnvoy starts a new Envoy.
func (b *bench) startEnvoy(args ...string) *envoytest.Envoy {
	b.t.Helper()
	admin := filepath.Join(b.dir, "a.sock")
	text := fmt.Sprintf(`{
  "node": {"id": "edge-1", "cluster": "fairlead"},
  "admin": {"address": {"pipe": {"path": %q}}},
  %s
  "layered_runtime": {"layers": [{"name": "l", "static_layer": {"re2.max_program_size.error_level": 200}}%s]},
  "dynamic_resources": {
    "ads_config": {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
      "grpc_services": [{"envoy_grpc": {"cluster_name": "agent", "retry_policy": {"retry_back_off": {"base_interval": "0.05s", "max_interval": "0.2s"}}}}]},
    "cds_config": {"ads": {}, "resource_api_version": "V3"}, "lds_config": {"ads": {}, "resource_api_version": "V3"}},
  "static_resources": {"clusters": [{"name": "agent", "type": "STATIC", "connect_timeout": "1s",
    "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
      "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}},
    "load_assignment": {"cluster_name": "agent", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": %q}}}}]}]}}]}}`,
		admin, b.reports, b.layers, SocketPath(b.dir))
	var bootstrap bootstrapv3.Bootstrap
	if err := protojson.Unmarshal([]byte(text), &bootstrap); err != nil {
		b.t.Fatal(err)
	}
	e, err := envoytest.Start(b.t.Context(), &bootstrap, admin, b.dir, append([]string{"--concurrency", "2"}, args...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = e.Close() })
	b.mu.Lock()
	b.envoy = e
	b.mu.Unlock()
	return e
}

func (b *bench) running() *envoytest.Envoy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.envoy
}

// plane sends changes as one revision, in the order of the types, with a checkpoint.
func (b *bench) plane(changes ...delta.Change) {
	b.t.Helper()
	b.revision++
	r := delta.Revision{Epoch: 1, Number: b.revision}
	byType := map[delta.Type][]delta.Change{}
	for _, c := range changes {
		byType[c.Type] = append(byType[c.Type], c)
	}
	byType[typeCheckpoint] = []delta.Change{checkpointAt(b.t, r)}
	for _, t := range planeTypes {
		if len(byType[t]) > 0 {
			if err := b.desired.receive(responseOf(b.t, r, byType[t]...)); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// applies waits until Envoy runs the last revision, less the problems named.
func (b *bench) applies(problems ...string) *agentv1.Applied {
	b.t.Helper()
	var last *agentv1.Applied
	eventually(b.t, fmt.Sprintf("revision %d with problems %v", b.revision, problems), func() bool {
		last = b.relay.applied()
		var names []string
		for _, p := range last.GetProblems() {
			names = append(names, p.GetName())
		}
		return last.GetRevision() == b.revision && strings.Join(names, " ") == strings.Join(problems, " ")
	})
	return last
}

// ask sends one request for a host.
func (b *bench) ask(host string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", b.port), nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = host + ".example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// answers waits for an answer: Envoy accepts a change on its main thread and hands it
// to the threads that serve after that. None but 200 is right meanwhile.
func (b *bench) answers(host, body string) {
	b.t.Helper()
	eventually(b.t, host+" to answer "+body, func() bool {
		status, text, err := b.ask(host)
		if err != nil || status != http.StatusOK {
			b.t.Fatalf("%s answered %d %q, %v; want %q", host, status, text, err, body)
		}
		return text == body
	})
}

// load asks for hosts all the time until stopped; it returns how many answers there
// were, and what was wrong with those that were not 200.
func (b *bench) load(hosts ...string) (stop func() (total int64, failures []string)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var mu sync.Mutex
	var failures []string
	var total atomic.Int64
	for i := range 4 {
		running.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				host := hosts[n%len(hosts)]
				status, body, err := b.ask(host)
				total.Add(1)
				if err != nil || status != http.StatusOK {
					mu.Lock()
					failures = append(failures, fmt.Sprintf("%s: %d %q %v", host, status, body, err))
					mu.Unlock()
				}
			}
		})
	}
	return func() (int64, []string) {
		cancel()
		running.Wait()
		return total.Load(), failures
	}
}

func (b *bench) unharmed(stop func() (int64, []string)) {
	b.t.Helper()
	total, failures := stop()
	b.t.Logf("%d requests, %d failed", total, len(failures))
	if len(failures) > 0 || total == 0 {
		b.t.Errorf("%d of %d requests failed: %v", len(failures), total, failures[:min(len(failures), 5)])
	}
}
