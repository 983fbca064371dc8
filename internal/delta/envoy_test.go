package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
)

// patience bounds every wait of these tests; nothing is concluded from its length.
const patience = 30 * time.Second

// findEnvoy looks where the setup puts Envoy, and skips the test without one.
func findEnvoy(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("FAIRLEAD_ENVOY"); path != "" {
		return path
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return path
	}
	path, err := filepath.Abs("../../.tools/envoy")
	if err == nil {
		if _, err = os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("no Envoy: not in FAIRLEAD_ENVOY, on PATH or in .tools (tools/setup.sh envoy installs it)")
	return ""
}

// adsServer serves one Set to any number of Envoys, one after the other.
type adsServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	t    *testing.T
	path string

	mu       sync.Mutex
	set      *delta.Set
	revision uint64
	stream   *delta.Stream
	end      context.CancelFunc // ends the open stream
	streams  int
	paused   bool // nothing is sent
	pauseOn  func(*discoveryv3.DeltaDiscoveryRequest) bool
	resends  bool // endpoints go again with their clusters
	events   []delta.Event
	requests []*discoveryv3.DeltaDiscoveryRequest
	sent     []*discoveryv3.DeltaDiscoveryResponse
	wake     chan struct{}
	news     chan struct{} // closed and replaced on every request
}

func newADSServer(t *testing.T) *adsServer {
	dir, err := os.MkdirTemp("", "ads") // short: a unix socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &adsServer{t: t, path: dir, set: delta.NewSet(), resends: true, wake: make(chan struct{}, 1), news: make(chan struct{})}
	listener, err := net.Listen("unix", filepath.Join(dir, "ads"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s
}

func (s *adsServer) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *adsServer) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, end := context.WithCancel(g.Context())
	defer end()
	s.mu.Lock()
	st := delta.NewStream(delta.Options{Wake: s.signal}, s.set)
	s.stream, s.end, s.events, s.requests, s.sent = st, end, nil, nil, nil
	s.streams++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.Close()
	}()
	failed := make(chan error, 1)
	go func() {
		for {
			req, err := g.Recv()
			if err == nil {
				err = s.receive(st, req)
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	for {
		for {
			resp := s.next(st)
			if resp == nil {
				break
			}
			if err := g.Send(resp); err != nil {
				return err
			}
		}
		select {
		case <-s.wake:
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *adsServer) receive(st *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := st.Receive(req)
	s.events = append(s.events, st.Events()...)
	s.requests = append(s.requests, req)
	if s.pauseOn != nil && s.pauseOn(req) {
		s.paused, s.pauseOn = true, nil
	}
	s.t.Logf("%s stream %d <- %s", time.Now().Format("05.000"), s.streams, describe(req))
	close(s.news)
	s.news = make(chan struct{})
	return err
}

func (s *adsServer) next(st *delta.Stream) *discoveryv3.DeltaDiscoveryResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return nil
	}
	resp := st.Next()
	if resp != nil {
		s.sent = append(s.sent, resp)
		var names []string
		for _, r := range resp.GetResources() {
			names = append(names, r.GetName())
			if s.resends && resp.GetTypeUrl() == string(cds) {
				st.Resend(eds, r.GetName())
			}
		}
		s.t.Logf("%s stream %d -> %s %v removed %v nonce %s", time.Now().Format("05.000"), s.streams, short(resp.GetTypeUrl()), names, resp.GetRemovedResources(), resp.GetNonce())
	}
	return resp
}

func describe(req *discoveryv3.DeltaDiscoveryRequest) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s nonce %q", short(req.GetTypeUrl()), req.GetResponseNonce())
	if n := req.GetResourceNamesSubscribe(); len(n) > 0 {
		fmt.Fprintf(b, " subscribe %v", n)
	}
	if n := req.GetResourceNamesUnsubscribe(); len(n) > 0 {
		fmt.Fprintf(b, " unsubscribe %v", n)
	}
	if v := req.GetInitialResourceVersions(); len(v) > 0 {
		fmt.Fprintf(b, " holds %v", v)
	}
	if e := req.GetErrorDetail(); e != nil {
		fmt.Fprintf(b, " refuses: %s", e.GetMessage())
	}
	return b.String()
}

func short(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }

// publish changes the Set: messages by name, nil to remove.
func (s *adsServer) publish(t delta.Type, messages map[string]proto.Message) {
	s.t.Helper()
	var changes []delta.Change
	for name, m := range messages {
		c := delta.Change{Type: t, Name: name}
		if m != nil {
			r, err := delta.NewResource(name, m)
			if err != nil {
				s.t.Fatal(err)
			}
			c.Resource = &r
		}
		changes = append(changes, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.set.Update(delta.Revision{Epoch: 1, Number: s.revision}, changes)
}

// pause holds responses back from now on, or lets them go.
func (s *adsServer) pause(paused bool) {
	s.mu.Lock()
	s.paused = paused
	s.mu.Unlock()
	s.signal()
}

// wait returns once the condition holds. It is asked under the lock after every
// request.
func (s *adsServer) wait(what string, condition func() bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		ok, news := condition(), s.news
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			s.t.Fatalf("Envoy never came so far: %s", what)
		}
	}
}

// settled waits until Envoy has taken or refused all of the types.
func (s *adsServer) settled(types ...delta.Type) {
	s.t.Helper()
	s.wait(fmt.Sprintf("settled %v", types), func() bool {
		return s.stream != nil && !slices.ContainsFunc(types, func(t delta.Type) bool {
			return !s.stream.Subscribed(t) || !s.stream.Settled(t)
		})
	})
}

func (s *adsServer) state(t delta.Type, name string) delta.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.State(t, name)
}

// first returns the first request of a type on the present stream.
func (s *adsServer) first(t delta.Type) *discoveryv3.DeltaDiscoveryRequest {
	s.t.Helper()
	var found *discoveryv3.DeltaDiscoveryRequest
	s.wait("a first request for "+string(t), func() bool {
		for _, r := range s.requests {
			if r.GetTypeUrl() == string(t) {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

// refusal waits for a request that refuses something of the type, holds back all
// that would follow, and returns it. It is armed before what will be refused is
// published.
func (s *adsServer) refusal(t delta.Type) (wait func() *discoveryv3.DeltaDiscoveryRequest) {
	var refused *discoveryv3.DeltaDiscoveryRequest
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauseOn = func(req *discoveryv3.DeltaDiscoveryRequest) bool {
		if req.GetTypeUrl() == string(t) && req.GetErrorDetail() != nil {
			refused = req
		}
		return refused != nil
	}
	return func() *discoveryv3.DeltaDiscoveryRequest {
		s.t.Helper()
		s.wait("a refusal of "+string(t), func() bool { return refused != nil })
		return refused
	}
}

// breakStream ends the stream and waits for the next one to come.
func (s *adsServer) breakStream() {
	s.t.Helper()
	s.mu.Lock()
	before := s.streams
	s.end()
	s.mu.Unlock()
	s.wait("a new stream", func() bool { return s.streams > before && len(s.requests) > 0 })
}

// startEnvoy runs Envoy against the server until the returned stop.
func (s *adsServer) startEnvoy(path string) (stop func()) {
	s.t.Helper()
	bootstrap := fmt.Sprintf(`
node: {id: spike, cluster: spike}
admin: {address: {pipe: {path: %[1]s/admin}}}
dynamic_resources:
  ads_config:
    api_type: DELTA_GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services: [{envoy_grpc: {cluster_name: ads}}]
  cds_config: {resource_api_version: V3, ads: {}}
  lds_config: {resource_api_version: V3, ads: {}}
static_resources:
  clusters:
  - name: ads
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: ads
      endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %[1]s/ads}}}}]}]
`, s.path)
	file := filepath.Join(s.path, "envoy.yaml")
	if err := os.WriteFile(file, []byte(bootstrap), 0o600); err != nil {
		s.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(s.path, "envoy.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(path, "-c", file, "--concurrency", "1", "-l", "warning", "--disable-hot-restart")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && s.t.Failed() {
			s.t.Logf("Envoy said at last:\n%s", text[max(0, len(text)-4096):])
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// get asks the server behind a unix socket, again until it listens.
func (s *adsServer) get(socket, path string) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			for {
				conn, err := d.DialContext(ctx, "unix", filepath.Join(s.path, socket))
				if err == nil || ctx.Err() != nil {
					return conn, err
				}
				select {
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://spike"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatalf("get %s of %s: %v", path, socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// runs returns what Envoy itself says that it runs: versions by name, in one of
// the lists of its config dump.
func (s *adsServer) runs(list string) map[string]string {
	s.t.Helper()
	_, body := s.get("admin", "/config_dump?include_eds&resource="+list)
	var dump struct {
		Configs []struct {
			Name        string `json:"name"`
			VersionInfo string `json:"version_info"`
			Cluster     struct {
				Name string `json:"name"`
			} `json:"cluster"`
			RouteConfig struct {
				Name string `json:"name"`
			} `json:"route_config"`
			ActiveState struct {
				VersionInfo string `json:"version_info"`
			} `json:"active_state"`
		} `json:"configs"`
	}
	if err := json.Unmarshal([]byte(body), &dump); err != nil {
		s.t.Fatalf("%v in %s", err, body)
	}
	versions := map[string]string{}
	for _, c := range dump.Configs {
		versions[c.Name+c.Cluster.Name+c.RouteConfig.Name] = c.VersionInfo + c.ActiveState.VersionInfo
	}
	return versions
}
