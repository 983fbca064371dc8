package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// site is a lab and what runs in it.
type site struct {
	*rig.Rig
	plane    *rig.Plane
	agents   map[string]*rig.Agent
	backends map[string]rig.Backend // by name: k8s1-a and so on
	api      dynamic.Interface
}

// Where the backends of the two clusters answer: one over IPv6, one over IPv4.
const (
	k8s1Port = 8080
	os1Port  = 80
)

var (
	client   = lab.MachineSpec{Name: "client", Role: lab.RoleClient}
	edge1    = lab.MachineSpec{Name: "edge-1", Role: lab.RoleEdge}
	edge2    = lab.MachineSpec{Name: "edge-2", Role: lab.RoleEdge}
	k8s1     = lab.MachineSpec{Name: "k8s1", Role: lab.RoleBackends, Addresses: 3}
	os1      = lab.MachineSpec{Name: "os1", Role: lab.RoleBackends, Addresses: 2}
	plane    = lab.MachineSpec{Name: "plane", Role: lab.RolePlane}
	newcomer = lab.MachineSpec{Name: "newcomer"}
)

// newLab brings up a lab that goes with the test, with nothing running in it but
// backends. It makes the test a parallel one.
func newLab(t *testing.T, name string, machines ...lab.MachineSpec) *site {
	t.Helper()
	return newLabOf(t, lab.Topology{Name: name, Machines: machines})
}

// newLabOf is newLab for any topology.
func newLabOf(t *testing.T, topology lab.Topology) *site {
	t.Helper()
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	enterOwn(t)
	s, err := buildLab(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	tell := s.listen()
	t.Cleanup(func() {
		tell(t)
		state := s.Lab.State()
		if err := s.Lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if left, err := lab.Leftovers(state); err != nil || len(left) > 0 {
			t.Errorf("left over: %s (%v)", strings.Join(left, ", "), err)
		}
	})
	return s
}

func buildLab(ctx context.Context, topology lab.Topology) (*site, error) {
	p, err := findPrograms()
	if err != nil {
		return nil, err
	}
	topology.Name = fmt.Sprintf("e2e-%d-%s", os.Getpid(), labNames.next(topology.Name))
	l, err := lab.Up(ctx, topology, lab.Options{})
	if err != nil {
		return nil, err
	}
	s := &site{
		Rig:    &rig.Rig{Lab: l, Binary: p.binary, Kubectl: p.kubectl, Envoy: p.envoy, Now: time.Now},
		agents: map[string]*rig.Agent{}, backends: map[string]rig.Backend{},
	}
	for _, m := range l.Machines(lab.RoleBackends) {
		addresses, port := m.Addrs6(), uint16(k8s1Port)
		if m.Name() == os1.Name {
			addresses, port = m.Addrs4(), os1Port
		}
		started, err := s.StartBackends(ctx, m, addresses, port)
		if err != nil {
			return nil, errors.Join(err, l.Down(context.WithoutCancel(ctx)))
		}
		for _, b := range started {
			s.backends[b.Name] = b
		}
	}
	return s, nil
}

// start starts a plane on the machine "plane" and an agent on every edge, and waits
// for all of them.
func (s *site) start(ctx context.Context, options rig.PlaneOptions, agentArgs ...string) error {
	var err error
	if s.plane, err = s.StartPlane(ctx, s.Lab.Machine(plane.Name), options); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	edges := s.Lab.Machines(lab.RoleEdge)
	for _, m := range edges {
		if s.agents[m.Name()], err = s.StartAgent(ctx, m, s.plane, agentArgs...); err != nil {
			return err
		}
	}
	for _, a := range s.agents {
		if err := a.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return s.plane.AwaitConnected(ctx, edges...)
}

// connect makes the client of the plane's API, whose connections start at the plane.
func (s *site) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.plane.Kubeconfig())
	if err != nil {
		return err
	}
	config.Dial, config.QPS = s.plane.Machine.Dial, -1
	config.WarningHandler = rest.NoWarnings{} // some tests write what deserves them
	s.api, err = dynamic.NewForConfig(config)
	return err
}

// sharedSite is the lab that most tests share: two edges, two clusters, a plane, and
// the examples applied.
var sharedSite *site

// shared returns the shared lab, when the tests before have done with it. It makes the
// test a parallel one.
func shared(t *testing.T) *site {
	t.Helper()
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	sharedLane.enter(t)
	if sharedSite == nil {
		ctx := context.Background()
		s, err := buildLab(ctx, lab.Topology{Name: "shared", Machines: []lab.MachineSpec{client, edge1, edge2, k8s1, os1, plane, newcomer}})
		if err != nil {
			t.Fatal(err)
		}
		sharedSite = s
		tell := s.listen()
		small, err := smallEnvoy(s.Envoy)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.start(ctx, rig.PlaneOptions{Args: []string{"--machine-ttl", "5s", "--ocsp-stapling"}}, "--drain-time", "2s", "--envoy", small); err != nil {
			t.Error(err)
			tell(t)
			t.FailNow()
		}
		s.applyExamples(t)
	}
	tell := sharedSite.listen()
	t.Cleanup(func() { tell(t) })
	if sharedSite.api == nil || len(sharedSite.agents) != 2 {
		t.Fatal("the shared lab did not come up")
	}
	sharedSite.mend(t)
	return sharedSite
}

// mend starts what a test that failed left dead, so that one failure stays one.
func (s *site) mend(t *testing.T) {
	t.Helper()
	for _, a := range s.agents {
		if a.Process == nil || !a.Process.Running() {
			t.Logf("an earlier test left %s without an agent", a.Machine.Name())
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !s.plane.Process.Running() {
		t.Log("an earlier test left the lab without a plane")
		s.startPlane(t)
	}
}

// listen notes how long the logs are and returns a function that shows, after a
// failure, the end of what was logged since.
func (s *site) listen() (tell func(t *testing.T)) {
	logs := func() (paths []string) {
		for _, pattern := range []string{"logs/*.log", "machines/*/run/envoy.log"} {
			found, _ := filepath.Glob(filepath.Join(s.Lab.State().Dir(), pattern))
			paths = append(paths, found...)
		}
		return paths
	}
	before := map[string]int64{}
	for _, path := range logs() {
		if info, err := os.Stat(path); err == nil {
			before[path] = info.Size()
		}
	}
	return func(t *testing.T) {
		if !t.Failed() {
			return
		}
		for _, path := range logs() {
			raw, err := os.ReadFile(path)
			if err != nil || int64(len(raw)) <= before[path] {
				continue
			}
			lines := strings.Split(strings.TrimSpace(string(raw[before[path]:])), "\n")
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "gRPC config stream to fairlead-agent closed since") })
			t.Logf("%s ends with\n%s", path, strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	}
}

// await waits until try gives nil, within the rig's patience.
func (s *site) await(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	if err := s.Await(t.Context(), what, try); err != nil {
		t.Fatal(err)
	}
}

// apply applies a manifest with kubectl.
func (s *site) apply(t *testing.T, manifests ...string) {
	t.Helper()
	if _, err := s.plane.Apply(t.Context(), strings.Join(manifests, "\n---\n")); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl, also in a test's cleanup, and returns what it prints.
func (s *site) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.plane.Kubectl(context.WithoutCancel(t.Context()), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// namespace makes a namespace that goes, with all that is in it, after the test. Each
// test has its own. Its routes go first: without their services they would be problems
// that the next test sees.
func (s *site) namespace(t *testing.T, name string) {
	t.Helper()
	s.apply(t, namespace(name))
	t.Cleanup(func() {
		for _, kind := range []string{"HTTPRoute", "IngressRoute"} {
			err := s.api.Resource(kinds[kind]).Namespace(name).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
			if err != nil {
				t.Error(err)
			}
		}
		s.kubectl(t, "delete", "namespace", name, "--wait=false")
	})
}

// run runs fairlead in a machine and returns its exit status, standard output and
// standard error.
func (s *site) run(t *testing.T, m *lab.Machine, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	c := m.Command(t.Context(), append([]string{s.Binary}, args...)...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// request is what a client asks for; only the host is needed.
type request struct {
	at                 netip.Addr // the edge's own address when zero
	method, host, path string
	header             http.Header
	port               uint16
	v6                 bool
	patience           time.Duration // default answerTime
}

// answer is what it got.
type answer struct {
	status  int
	backend string
	body    string
	closes  bool // the server ends the connection with it
}

func (a answer) String() string {
	if a.backend != "" {
		return fmt.Sprintf("%d from %s", a.status, a.backend)
	}
	return fmt.Sprintf("%d %q", a.status, strings.TrimSpace(a.body))
}

// ask sends one request from the client to an edge, on a connection of its own.
func (s *site) ask(ctx context.Context, edge string, r request) (answer, error) {
	target := netip.AddrPortFrom(r.at, cmp.Or(r.port, 80))
	switch {
	case r.at.IsValid():
	case r.v6:
		target = netip.AddrPortFrom(s.Lab.Machine(edge).Addr6(), target.Port())
	default:
		target = netip.AddrPortFrom(s.Lab.Machine(edge).Addr4(), target.Port())
	}
	if r.method == "" {
		r.method = http.MethodGet
	}
	if !strings.HasPrefix(r.path, "/") {
		r.path = "/" + r.path
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.patience, answerTime))
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, r.method, "http://"+target.String()+r.path, nil)
	if err != nil {
		return answer{}, err
	}
	q.Host = r.host
	if r.header != nil {
		q.Header = r.header
	}
	transport := &http.Transport{DialContext: s.Lab.Machine(client.Name).Dial}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(q)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return answer{resp.StatusCode, resp.Header.Get("X-Backend"), string(body), resp.Close}, err
}

// edges are the names of the lab's edges.
func (s *site) edges() []string {
	var names []string
	for _, m := range s.Lab.Machines(lab.RoleEdge) {
		names = append(names, m.Name())
	}
	return names
}

// awaitAnswer waits until every edge answers the request with a status and, unless
// it is empty, one of the backends.
func (s *site) awaitAnswer(t *testing.T, r request, status int, backends ...string) {
	t.Helper()
	for _, edge := range s.edges() {
		s.awaitAnswerOf(t, edge, r, status, backends...)
	}
}

func (s *site) awaitAnswerOf(t *testing.T, edge string, r request, status int, backends ...string) {
	t.Helper()
	s.await(t, fmt.Sprintf("%s to answer %s%s with %d", edge, r.host, r.path, status), func(ctx context.Context) error {
		a, err := s.ask(ctx, edge, r)
		if err != nil {
			return err
		}
		if a.status != status || len(backends) > 0 && !slices.Contains(backends, a.backend) {
			return fmt.Errorf("it answers %s", a)
		}
		return nil
	})
}
