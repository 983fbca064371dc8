package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// call is one discovery stream, whose plane's end a test speaks.
type call struct {
	machine  string
	requests chan *discoveryv3.DeltaDiscoveryRequest
	stream   discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	end      chan error // to end it from here
	gone     <-chan struct{}
	nonce    int
}

func (p *plane) DeltaAggregatedResources(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	machine, err := p.caller(st.Context())
	if err != nil {
		return err
	}
	p.mu.Lock()
	if p.leader != "" {
		defer p.mu.Unlock()
		return p.standby()
	}
	p.mu.Unlock()
	c := &call{
		machine: machine, requests: make(chan *discoveryv3.DeltaDiscoveryRequest, 64), stream: st,
		end: make(chan error, 1), gone: st.Context().Done(),
	}
	go func() {
		for {
			req, err := st.Recv()
			if err != nil {
				return
			}
			select {
			case c.requests <- req:
			case <-c.gone:
				return
			}
		}
	}()
	p.calls <- c
	select {
	case err := <-c.end:
		return err
	case <-c.gone:
		return nil
	}
}

func (p *plane) Observe(st grpc.BidiStreamingServer[agentv1.Report, agentv1.Instruction]) error {
	p.mu.Lock()
	instruct := p.instruct
	p.mu.Unlock()
	if instruct != nil {
		if err := st.Send(instruct); err != nil {
			return err
		}
	}
	for {
		report, err := st.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		p.mu.Lock()
		p.reports++
		p.mu.Unlock()
		if n := report.GetLeaving(); n > 0 {
			go func() {
				if p.notice != nil {
					select {
					case <-p.notice:
					case <-st.Context().Done():
						return
					}
				}
				_ = st.Send(&agentv1.Instruction{Left: n})
			}()
		}
	}
}

// call waits for an agent's next discovery stream and its subscriptions.
func (p *plane) call() (*call, map[delta.Type]*discoveryv3.DeltaDiscoveryRequest) {
	p.t.Helper()
	select {
	case c := <-p.calls:
		asked := map[delta.Type]*discoveryv3.DeltaDiscoveryRequest{}
		for asked[typeCheckpoint] == nil { // the last
			req := c.request(p.t)
			asked[delta.Type(req.GetTypeUrl())] = req
		}
		return c, asked
	case <-time.After(patience):
		p.t.Fatal("the agent does not come")
		return nil, nil
	}
}

func (c *call) request(t *testing.T) *discoveryv3.DeltaDiscoveryRequest {
	t.Helper()
	select {
	case req := <-c.requests:
		return req
	case <-c.gone:
		t.Fatal("the agent ended its stream")
	case <-time.After(patience):
		t.Fatal("the agent asks nothing")
	}
	return nil
}

func (c *call) send(t *testing.T, resp *discoveryv3.DeltaDiscoveryResponse) {
	t.Helper()
	c.nonce++
	resp.Nonce = fmt.Sprint(c.nonce)
	if err := c.stream.Send(resp); err != nil {
		t.Fatal(err)
	}
}

// tell sends a response and returns the agent's answer: empty when it accepted.
func (c *call) tell(t *testing.T, resp *discoveryv3.DeltaDiscoveryResponse) string {
	t.Helper()
	c.send(t, resp)
	for {
		req := c.request(t)
		if req.GetResponseNonce() == resp.GetNonce() {
			return req.GetErrorDetail().GetMessage()
		}
	}
}

func (c *call) must(t *testing.T, responses ...*discoveryv3.DeltaDiscoveryResponse) {
	t.Helper()
	for _, resp := range responses {
		if says := c.tell(t, resp); says != "" {
			t.Fatalf("refused: %s", says)
		}
	}
}

// steadyProxy is an Envoy that is always well.
type steadyProxy struct{}

func (steadyProxy) Run(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }
func (steadyProxy) Status() model.ProxyStatus               { return model.ProxyStatus{State: proxyReady, Starts: 1} }

func (steadyProxy) Traffic(context.Context) (model.Traffic, error) {
	return model.Traffic{Requests: []model.RequestFigures{{Listener: "http-80", Group: "team/app/80", Classes: [model.StatusClasses]uint64{2: 7}}}}, nil
}

func (steadyProxy) Warming(context.Context) ([]string, error) {
	return nil, nil
}
func (steadyProxy) Active(context.Context) ([]string, error) { return nil, nil }

// idleProxy fails the test if it is run.
type idleProxy struct {
	steadyProxy
	t *testing.T
}

func (p idleProxy) Run(context.Context, func()) error {
	p.t.Error("a proxy was started")
	return nil
}

// machineRig is a machine with directories of its own.
type machineRig struct {
	t      *testing.T
	config Config
	counts *prometheus.Registry

	tokenFile    string        // where config.Token is
	withholdTime time.Duration // the default when 0
}

func newMachine(t *testing.T, name string, planes ...*plane) *machineRig {
	t.Helper()
	run, err := os.MkdirTemp("", "ag") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	token := planes[0].token("for-"+name, name)
	m := &machineRig{t: t, tokenFile: token, config: Config{
		Name: name, DataDir: t.TempDir(), RunDir: run, Proxy: steadyProxy{}, Version: "test",
		Token: TokenFile(token), Now: planes[0].authority.clock.Now,
		Addresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.10")}, nil },
	}}
	for _, p := range planes {
		m.config.Planes = append(m.config.Planes, p.address)
	}
	return m
}

// start runs the machine's agent until the returned function is called.
func (m *machineRig) start() (a *Agent, stop func()) {
	m.t.Helper()
	m.counts = prometheus.NewRegistry()
	c := m.config
	c.Registerer, c.Rand = m.counts, rand.New(rand.NewPCG(1, 2))
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a, err := New(c)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.withholdTime != 0 {
		a.relay.withholdTime = m.withholdTime
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				m.t.Errorf("run: %v", err)
			}
		case <-time.After(patience):
			m.t.Error("run does not end")
		}
	})
	m.t.Cleanup(stop)
	return a, stop
}

// renewals counts the renewals with that result.
func (m *machineRig) renewals(result string) (n float64) {
	m.t.Helper()
	families, err := m.counts.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			if f.GetName() == "fairlead_agent_renewals_total" && series.GetLabel()[0].GetValue() == result {
				n += series.GetCounter().GetValue()
			}
		}
	}
	return n
}

// eventually asks until the answer is yes: of what tells nobody when it changes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: never", what)
		}
	}
}

// whole is a small whole state at a revision.
func whole(t *testing.T, r delta.Revision, salt int) []*discoveryv3.DeltaDiscoveryResponse {
	return []*discoveryv3.DeltaDiscoveryResponse{
		responseOf(t, r, gatetest.Cluster(t, "c1", "s1", salt)),
		responseOf(t, r, gatetest.Endpoints(t, "s1", salt)),
		responseOf(t, r, checkpointAt(t, r)),
	}
}

func revisionOf(req *discoveryv3.DeltaDiscoveryRequest) string {
	return req.GetNode().GetMetadata().GetFields()[agentv1.RevisionField].GetStringValue()
}
