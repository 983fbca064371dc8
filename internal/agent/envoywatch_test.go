package agent

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/gate/gatetest"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// watchdog is what the plane of TestEnvoyServesWhatIsWanted wants, and what it has done to
// the machine. The last listener is reached by TLS.
type watchdog struct {
	*bench
	random   *rand.Rand
	backends []*net.TCPAddr
	ports    map[string]int
	held     map[string]net.Listener // ports that another process has

	listeners map[string]string // salt; bad is refused
	hosts     map[string]map[string]watchedHost
	clusters  map[string]watchedCluster
	sets      map[string]int // which backend; negative is refused
	secret    bool
	salt      int
	done      []string
	pending   []delta.Change
}

type watchedHost struct {
	cluster string
	bad     bool
}

type watchedCluster struct {
	set string
	bad bool
}

const (
	watchedShards = 2
	secretName    = "certificate"
)

var watchedListeners = []string{"l0", "l1", "l2"}

// TestEnvoyServesWhatIsWanted: whatever is refused, held back, restarted and changed, in the
// end a real Envoy serves what the plane wants, less what is reported. One Envoy lives
// through many sequences, for what one leaves behind is what the next one suffers from.
//
// FAIRLEAD_FUZZ_COUNT is how many sequences there are, FAIRLEAD_FUZZ_SEED repeats a run.
func TestEnvoyServesWhatIsWanted(t *testing.T) {
	count, seed := 25, uint64(time.Now().UnixNano())
	if testing.Short() {
		count = 5
	}
	if s := os.Getenv("FAIRLEAD_FUZZ_COUNT"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		count = n
	}
	if s := os.Getenv("FAIRLEAD_FUZZ_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("FAIRLEAD_FUZZ_SEED=%d", seed)
	w := newWatchdog(t, seed)
	for i := range count {
		w.done = nil
		for range 3 + w.random.IntN(8) {
			w.act()
			if w.random.IntN(3) == 0 {
				w.deliver()
			}
			if w.random.IntN(3) == 0 {
				w.pause()
			}
		}
		if !w.secret {
			w.keep("the secret comes", w.certificate())
		}
		w.deliver()
		w.judge(i)
		for _, line := range w.log.lines() {
			if strings.Contains(line, "does not use") {
				t.Logf("sequence %d (%s): %s", i, strings.Join(w.done, "; "), line)
			}
		}
	}
	for step, n := range w.mends {
		t.Logf("%d sequences: mended %d times by %s", count, n, step)
		if step != gate.MendResend.String() {
			t.Errorf("Envoy had to %s %d times", step, n)
		}
	}
}

func newWatchdog(t *testing.T, seed uint64) *watchdog {
	b := newBench(t)
	w := &watchdog{
		bench: b, random: rand.New(rand.NewPCG(seed, 2)), ports: map[string]int{}, held: map[string]net.Listener{},
		listeners: map[string]string{}, hosts: map[string]map[string]watchedHost{}, clusters: map[string]watchedCluster{}, sets: map[string]int{},
	}
	for i := range 2 {
		w.backends = append(w.backends, b.backend(fmt.Sprint("backend ", i)))
	}
	for _, l := range watchedListeners {
		other, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w.ports[l] = other.Addr().(*net.TCPAddr).Port
		if l == watchedListeners[0] {
			w.held[l] = other // a new Envoy begins with a refusal
		} else if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		for _, scope := range scopesOf(l) {
			w.hosts[scope] = map[string]watchedHost{"h0": {cluster: "c0"}}
			w.keep("", b.scope(scope), w.routes(scope))
		}
	}
	t.Cleanup(func() {
		for _, other := range w.held {
			_ = other.Close()
		}
	})
	w.clusters["c0"], w.sets["s0"], w.listeners["l0"] = watchedCluster{set: "s0"}, 0, ""
	config := &agentv1.MachineConfig{DrainTime: durationpb.New(50 * time.Millisecond)}
	w.keep("", delta.Change{Type: typeMachine, Name: "edge-1", Resource: gatetest.Pack(t, "edge-1", config)},
		w.cluster("c0"), w.endpoints("s0"), w.listener("l0"))
	w.deliver()
	w.startEnvoy("--drain-time-s", "1")
	return w
}

func scopesOf(listener string) []string {
	var names []string
	for i := range watchedShards {
		names = append(names, fmt.Sprint(listener, "/", i))
	}
	return names
}

// keep notes changes for the next delivery.
func (w *watchdog) keep(what string, changes ...delta.Change) {
	if what != "" {
		w.done = append(w.done, what)
	}
	w.pending = append(w.pending, changes...)
}

// deliver sends what is pending as one revision. Of a resource the last change counts.
func (w *watchdog) deliver() {
	last := map[key]int{}
	for i, c := range w.pending {
		last[key{c.Type, c.Name}] = i
	}
	var changes []delta.Change
	for i, c := range w.pending {
		if last[key{c.Type, c.Name}] == i {
			changes = append(changes, c)
		}
	}
	w.random.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	w.plane(changes...)
	w.pending = nil
}

// pause lets what is under way get to another place, up to its end.
func (w *watchdog) pause() {
	if w.random.IntN(2) == 0 {
		time.Sleep(time.Duration(w.random.IntN(30)) * time.Millisecond)
		return
	}
	deadline := time.Now().Add(300 * time.Millisecond)
	for time.Now().Before(deadline) && w.relay.applied().GetRevision() != w.revision {
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *watchdog) act() {
	w.salt++
	name := func(prefix string, n int) string { return fmt.Sprint(prefix, w.random.IntN(n)) }
	l := watchedListeners[w.random.IntN(len(watchedListeners))]
	switch w.random.IntN(24) {
	case 0, 1: // another process takes the port
		if w.held[l] == nil {
			if other, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", w.ports[l])); err == nil {
				w.held[l] = other
				w.done = append(w.done, "hold "+l)
			}
		}
	case 2, 3:
		w.release(l)
	case 4, 5, 6: // a listener comes or changes
		w.listeners[l] = fmt.Sprint("v", w.salt)
		w.keep("listener "+l, w.listener(l))
	case 7:
		w.listeners[l] = gatetest.Bad
		w.keep("bad listener "+l, w.listener(l))
	case 8, 9:
		delete(w.listeners, l)
		w.keep("no listener "+l, gatetest.Removal(typeListener, l))
	case 10, 11, 12: // hosts
		scope := scopesOf(l)[w.random.IntN(watchedShards)]
		h := name("h", 3)
		host := watchedHost{cluster: name("c", 4), bad: w.random.IntN(6) == 0}
		w.hosts[scope][h] = host
		w.keep(fmt.Sprint("host ", scope, "/", h, " ", host), w.routes(scope))
	case 13:
		scope, h := scopesOf(l)[w.random.IntN(watchedShards)], name("h", 3)
		delete(w.hosts[scope], h)
		w.keep(fmt.Sprint("no host ", scope, "/", h), w.routes(scope))
	case 14, 15: // clusters
		c := name("c", 4)
		w.clusters[c] = watchedCluster{set: name("s", 3), bad: w.random.IntN(5) == 0}
		w.keep(fmt.Sprint("cluster ", c, " ", w.clusters[c]), w.cluster(c))
	case 16:
		c := name("c", 4)
		delete(w.clusters, c)
		w.keep("no cluster "+c, gatetest.Removal(typeCluster, c))
	case 17, 18: // endpoints
		s := name("s", 3)
		if w.sets[s] = w.random.IntN(len(w.backends)); w.random.IntN(5) == 0 {
			w.sets[s] = -1
		}
		w.keep(fmt.Sprint("endpoints ", s, " ", w.sets[s]), w.endpoints(s))
	case 19:
		s := name("s", 3)
		delete(w.sets, s)
		w.keep("no endpoints "+s, gatetest.Removal(typeEndpoint, s))
	case 20:
		if w.secret = !w.secret; w.secret {
			w.keep("secret", w.certificate())
		} else {
			w.keep("no secret", gatetest.Removal(typeSecret, secretName))
		}
	case 21:
		w.done = append(w.done, "agent restarts")
		w.stop()
		w.startAgent()
	case 22:
		if w.random.IntN(2) == 0 {
			w.done = append(w.done, "envoy killed")
			if err := w.running().Close(); err != nil {
				w.t.Fatal(err)
			}
			w.startEnvoy("--drain-time-s", "1")
		}
	case 23:
		w.done = append(w.done, "stream ends")
		w.relay.served.mu.Lock()
		if w.relay.served.cancel != nil {
			w.relay.served.cancel()
		}
		w.relay.served.mu.Unlock()
	}
}

func (w *watchdog) release(l string) {
	if w.held[l] != nil {
		w.done = append(w.done, "release "+l)
		if err := w.held[l].Close(); err != nil {
			w.t.Fatal(err)
		}
		delete(w.held, l)
	}
}

func (w *watchdog) listener(name string) delta.Change {
	c := w.scopedListener(name, w.ports[name], w.listeners[name], func(l *listenerv3.Listener) {
		if w.listeners[name] == gatetest.Bad {
			l.Address = socket("no address", w.ports[name])
		}
		if name == watchedListeners[2] {
			l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
				TypedConfig: gatetest.AnyOf(w.t, &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
					TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: secretName, SdsConfig: fetched()}},
				}}),
			}}
		}
	})
	return c
}

func (w *watchdog) routes(scope string) delta.Change {
	rc := &routev3.RouteConfiguration{Name: scope}
	for _, n := range slices.Sorted(maps.Keys(w.hosts[scope])) {
		h := w.hosts[scope][n]
		v := gatetest.Host{Name: n, Clusters: []string{h.cluster}, Salt: w.salt}.Proto()
		if h.bad {
			v.Routes[0].Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{
				SafeRegex: &matcherv3.RegexMatcher{Regex: "/(" + strings.Repeat("[a-z0-9]{1,8}", 20) + ")?"},
			}
		}
		rc.VirtualHosts = append(rc.VirtualHosts, v)
	}
	return delta.Change{Type: typeRoute, Name: scope, Resource: gatetest.Pack(w.t, scope, rc)}
}

func (w *watchdog) cluster(name string) delta.Change {
	c := w.clusters[name]
	return w.bench.cluster(name, c.set, func(m *clusterv3.Cluster) {
		m.AltStatName = fmt.Sprint("v", w.salt)
		if c.bad {
			m.EdsClusterConfig = nil
		}
	})
}

func (w *watchdog) endpoints(set string) delta.Change {
	if w.sets[set] >= 0 {
		return w.bench.endpoints(set, w.backends[w.sets[set]])
	}
	return delta.Change{Type: typeEndpoint, Name: set, Resource: gatetest.Pack(w.t, set, &endpointv3.ClusterLoadAssignment{
		ClusterName: set,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socket("no address", 1)}},
		}}}},
	})}
}

// certificate is the secret, with a key that is made for it.
func (w *watchdog) certificate() delta.Change {
	w.secret = true
	private, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(w.salt) + 1), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"*.example"}}
	certificate, err := x509.CreateCertificate(crand.Reader, template, template, private.Public(), private)
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		w.t.Fatal(err)
	}
	inline := func(kind string, der []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})}}
	}
	return delta.Change{Type: typeSecret, Name: secretName, Resource: gatetest.Pack(w.t, secretName, &tlsv3.Secret{
		Name: secretName, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline("CERTIFICATE", certificate), PrivateKey: inline("PRIVATE KEY", key),
		}},
	})}
}

// judge waits until Envoy serves what is wanted, and says what it does not serve else.
func (w *watchdog) judge(sequence int) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for skipped := false; ; {
		wrong, retry := w.wrong()
		if wrong == "" {
			if wrong, _ = w.wrong(); wrong == "" { // and it stays so
				return
			}
		}
		if retry && !skipped { // the port is free: the next try would be in some seconds
			skipped = true
			w.skip(10 * time.Second)
		}
		if time.Now().After(deadline) {
			w.explain()
			w.t.Fatalf("after sequence %d (%s): %s", sequence, strings.Join(w.done, "; "), wrong)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *watchdog) explain() {
	w.t.Logf("applied: %v", w.relay.applied())
	for _, path := range []string{"/init_dump", "/listeners", "/clusters?format=text", "/stats?usedonly&filter=(listener_manager|scoped_rds|cluster_manager)"} {
		body, err := w.running().Admin(w.t.Context(), http.MethodGet, path)
		w.t.Log(path, body, err)
	}
	w.t.Log(strings.Join(w.log.lines(), "\n"))
	w.t.Log(w.running().Log())
}

// wrong compares what Envoy serves with what is wanted; empty: nothing. retry says that a
// listener is to be tried again.
func (w *watchdog) wrong() (what string, retry bool) {
	applied := w.relay.applied()
	if applied.GetRevision() != w.revision {
		return fmt.Sprintf("applied is %d, want %d", applied.GetRevision(), w.revision), w.retries()
	}
	problems := map[string]*agentv1.Problem{}
	for _, p := range applied.GetProblems() {
		problems[shortType(delta.Type(p.GetTypeUrl()))+" "+p.GetName()] = p
	}
	serving, warming, err := w.Listeners(w.t.Context())
	if err != nil {
		return err.Error(), false
	}
	if len(warming) > 0 {
		return fmt.Sprintf("listeners warm: %v", warming), false
	}
	routed := false
	for _, l := range watchedListeners {
		salt, wanted := w.listeners[l]
		_, serves := serving[l]
		routed = routed || serves
		p := problems["Listener "+l]
		delete(problems, "Listener "+l)
		switch {
		case !wanted && (serves || p != nil):
			return fmt.Sprintf("listener %s is not wanted: it serves %t, problem %v", l, serves, p), false
		case !wanted:
		case salt != gatetest.Bad && w.held[l] == nil && p != nil:
			return fmt.Sprintf("listener %s is sound, and reported: %v", l, p), true
		case p == nil && !serves:
			return fmt.Sprintf("listener %s does not serve, and that is not reported", l), false
		}
	}
	for _, l := range watchedListeners {
		if _, serves := serving[l]; !serves {
			continue
		}
		for _, scope := range scopesOf(l) {
			for _, n := range []string{"h0", "h1", "h2"} {
				if what := w.wrongHost(l, scope, n, problems); what != "" {
					return what, false
				}
			}
		}
	}
	for at, p := range problems {
		kind, name, _ := strings.Cut(at, " ")
		reason := false
		switch kind {
		case "RouteConfiguration":
			scope, h := name[:strings.LastIndexByte(name, '/')], name[strings.LastIndexByte(name, '/')+1:]
			reason = !w.sound(w.hosts[scope][h])
		case "Cluster":
			reason = w.clusters[name].bad
		case "ClusterLoadAssignment":
			reason = w.sets[name] < 0
		}
		if !reason {
			return fmt.Sprintf("problem without reason: %v", p), false
		}
	}
	if n := w.running().Stat(w.t.Context(), "cluster_manager.warming_clusters"); n != 0 {
		return fmt.Sprintf("%d clusters warm", n), false
	}
	return "", false
}

// retries says whether a listener that was refused could be taken now.
func (w *watchdog) retries() bool {
	for _, p := range w.relay.applied().GetProblems() {
		if p.GetTypeUrl() == string(typeListener) && w.held[p.GetName()] == nil && cmp.Or(w.listeners[p.GetName()], "x") != gatetest.Bad {
			return true
		}
	}
	return false
}

// sound says whether requests to a host must be answered by the backend of its cluster.
func (w *watchdog) sound(h watchedHost) bool {
	c, there := w.clusters[h.cluster]
	set, fed := w.sets[c.set]
	return there && !h.bad && !c.bad && fed && set >= 0
}

func (w *watchdog) wrongHost(l, scope, n string, problems map[string]*agentv1.Problem) string {
	h, wanted := w.hosts[scope][n]
	p := problems["RouteConfiguration "+scope+"/"+n]
	// Endpoints that the plane took away while they are used are nobody's problem here.
	set := w.clusters[h.cluster].set
	_, fed := w.sets[set]
	reported := p != nil || problems["Cluster "+h.cluster] != nil || problems["ClusterLoadAssignment "+set] != nil || !fed
	status, body, err := w.askWatched(l, scope, n)
	at := fmt.Sprintf("%s/%s (%+v) answers %d %q %v, problem %v: ", scope, n, h, status, body, err, p)
	switch {
	case err != nil:
		return at + "no answer"
	case !wanted && status != http.StatusNotFound:
		return at + "it is not wanted"
	case !wanted:
	case w.sound(h) && p != nil:
		return at + "it is sound, and reported"
	case w.sound(h) && (status != http.StatusOK || body != fmt.Sprint("backend ", w.sets[w.clusters[h.cluster].set])):
		return at + "it is sound, and does not answer as wanted"
	case !w.sound(h) && !reported && status != http.StatusOK:
		return at + "that is not reported"
	case status == http.StatusNotFound:
		return at + "it is wanted, and unknown"
	}
	return ""
}

func (w *watchdog) askWatched(l, scope, n string) (status int, body string, err error) {
	scheme := "http"
	if l == watchedListeners[2] {
		scheme = "https"
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the certificate is the test's own
	}}
	req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("%s://127.0.0.1:%d/", scheme, w.ports[l]), nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = n + ".example"
	req.Header.Set(scopeHeader, scope)
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
