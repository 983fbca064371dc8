package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	"fairlead.dev/internal/xds/envoytest"
)

// ScopesOptions choose the sizes of the benchmark of route shards. The zero value is the
// one whose figures are published.
type ScopesOptions struct {
	Hosts    int // default 20,000
	Changes  int // measured changes, default 200
	Requests int // requests per run of the cost of the normaliser, default 10,000
	Runs     int // runs of each kind, taken in turn, default 15
}

// ScopesResult is what route shards cost and save in a real Envoy.
type ScopesResult struct {
	Hosts int `json:"hosts"`
	// From the listener's configuration being offered to its first accepted connection.
	LoadSeconds float64 `json:"load_s"`
	RSSMB       float64 `json:"envoy_rss_mb"`
	// From one changed host being offered to the first answer by its new route.
	ChangeP50 float64 `json:"change_p50_ms"`
	ChangeP99 float64 `json:"change_p99_ms"`
	// The same with all hosts in one route configuration.
	OneChangeP50 float64 `json:"one_configuration_change_p50_ms"`
	// Processor time of Envoy for a request with a fixed response: with the scope sent by
	// the client and no normaliser, with the normaliser for an exact host, and for a host
	// that falls to the wildcard scope. The least of the runs: other work only adds.
	PlainMicros    float64 `json:"plain_us"`
	ExactMicros    float64 `json:"exact_us"`
	WildcardMicros float64 `json:"wildcard_us"`
	ExactRatio     float64 `json:"exact_ratio"` // of exact to plain
}

const (
	scopesListener model.ListenerID = "http-bench"
	scopesPlain    model.ListenerID = "http-plain"

	routesURL   = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	listenerURL = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// Scopes measures route shards in a real Envoy. It returns envoytest.ErrNoEnvoy where
// there is none.
func Scopes(ctx context.Context, o ScopesOptions) (ScopesResult, error) {
	o.Hosts = orDefault(o.Hosts, 20_000)
	o.Changes = orDefault(o.Changes, 200)
	o.Requests = orDefault(o.Requests, 10_000)
	o.Runs = orDefault(o.Runs, 15)
	r := ScopesResult{Hosts: o.Hosts}
	s, err := newScopesBench(ctx)
	if err != nil {
		return r, err
	}
	defer s.close()
	if err := s.load(ctx, o, &r); err != nil {
		return r, err
	}
	if r.ChangeP50, r.ChangeP99, err = s.changes(ctx, o.Changes, benchShard); err != nil {
		return r, err
	}
	if err := s.cost(ctx, o, &r); err != nil {
		return r, err
	}
	// Every host in one route configuration: the wildcard scope takes them all.
	if err := s.gather(ctx); err != nil {
		return r, err
	}
	r.OneChangeP50, _, err = s.changes(ctx, max(5, o.Changes/10), func(string) int { return xds.WildShard })
	return r, err
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// scopesBench is a real Envoy with its server and the routes that it should have.
type scopesBench struct {
	ads    *envoytest.ADS
	envoy  *envoytest.Envoy
	dir    string
	port   map[model.ListenerID]uint16
	hosts  []string
	shards map[int][]model.VirtualHost
}

func newScopesBench(ctx context.Context, edit ...func(*bootstrapv3.Bootstrap)) (*scopesBench, error) {
	dir, err := os.MkdirTemp("", "scopes")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	s := &scopesBench{ads: envoytest.NewADS(), dir: dir, port: map[model.ListenerID]uint16{}, shards: map[int][]model.VirtualHost{}}
	l, err := net.Listen("unix", filepath.Join(dir, "ads"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for envoy: %w", err), os.RemoveAll(dir))
	}
	s.ads.Serve(l)
	bootstrap := xds.Bootstrap(xds.BootstrapOptions{NodeID: "bench", ADSSocket: filepath.Join(dir, "ads"), AdminSocket: filepath.Join(dir, "admin")})
	for _, f := range edit {
		f(bootstrap)
	}
	s.envoy, err = envoytest.Start(ctx, bootstrap, filepath.Join(dir, "admin"), dir, "--concurrency", "1")
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *scopesBench) close() {
	if s.envoy != nil {
		_ = s.envoy.Close()
	}
	s.ads.Close()
	_ = os.RemoveAll(s.dir)
}

// benchHost answers with the number of its version, behind a route that is not taken.
func benchHost(name string, version int) model.VirtualHost {
	answer := func(path string, version int) model.Route {
		return model.Route{
			Name:    "HTTPRoute/team/" + name + path,
			Match:   model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: path}},
			Respond: &model.Respond{Status: 200, Body: strconv.Itoa(version)},
		}
	}
	return model.VirtualHost{
		HostKey: model.HostKey{Listener: scopesListener, Host: name},
		Routes:  []model.Route{answer("/api", version), answer("/", version)},
	}
}

// load offers all hosts and waits until Envoy accepts.
func (s *scopesBench) load(ctx context.Context, o ScopesOptions, r *ScopesResult) error {
	for i := range o.Hosts {
		name := fmt.Sprintf("app-%d.team-%d.example.com", i, i%97)
		s.hosts = append(s.hosts, name)
		s.shards[benchShard(name)] = append(s.shards[benchShard(name)], benchHost(name, 0))
	}
	s.shards[xds.WildShard] = []model.VirtualHost{benchHost("*.wild.test", 0)}
	begin := time.Now()
	if err := s.listen(ctx, scopesListener, nil); err != nil {
		return err
	}
	r.LoadSeconds = time.Since(begin).Seconds()
	r.RSSMB = float64(s.envoy.RSS()) / 1024
	return nil
}

// benchShard is the shard of a host at a listener that all share.
func benchShard(host string) int { return xds.Shard(scopesListener, host) }

// listen opens a listener over the bench's routes; edit changes its connection manager.
func (s *scopesBench) listen(ctx context.Context, id model.ListenerID, edit func(*hcmv3.HttpConnectionManager)) error {
	port, err := unusedPort()
	if err != nil {
		return err
	}
	s.port[id] = port
	for _, shard := range xds.AllShards(id) {
		if err := s.ads.Set(xds.RouteConfiguration(id, shard, s.shards[shard])); err != nil {
			return err
		}
	}
	for _, scope := range xds.Scopes(id) {
		if err := s.ads.Set(scope); err != nil {
			return err
		}
	}
	l := xds.Listener(model.Listener{ID: id, Port: port, Protocol: model.ProtocolHTTP}, nil, xds.Options{})
	if edit != nil {
		if err := editManager(l, edit); err != nil {
			return err
		}
	}
	if edit != nil && len(s.port) > 1 {
		// Another listener has the scopes already: this one would open before its routes.
		for _, shard := range xds.AllShards(id) {
			if err := s.ads.Acked(ctx, routesURL, xds.RouteConfigurationName(id, shard)); err != nil {
				return err
			}
		}
	}
	if err := s.ads.Set(l); err != nil {
		return err
	}
	if err := s.ads.Acked(ctx, listenerURL, string(id)); err != nil {
		return err
	}
	return s.envoy.Until(ctx, "envoy to accept", func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

func editManager(l *listenerv3.Listener, edit func(*hcmv3.HttpConnectionManager)) error {
	config := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig()
	var m hcmv3.HttpConnectionManager
	if err := config.UnmarshalTo(&m); err != nil {
		return fmt.Errorf("read connection manager: %w", err)
	}
	edit(&m)
	return anypb.MarshalFrom(config, &m, proto.MarshalOptions{Deterministic: true})
}

// changes changes one host after the other and takes the time until it answers anew.
func (s *scopesBench) changes(ctx context.Context, n int, shardOf func(string) int) (p50, p99 float64, err error) {
	c, err := dialBench(s.port[scopesListener])
	if err != nil {
		return 0, 0, err
	}
	defer c.conn.Close()
	var times []float64
	for i := range n {
		name := s.hosts[(i*7919)%len(s.hosts)]
		shard := shardOf(name)
		hosts := s.shards[shard]
		at := slices.IndexFunc(hosts, func(h model.VirtualHost) bool { return h.Host == name })
		version := 1000 + i
		hosts[at] = benchHost(name, version)
		rc := xds.RouteConfiguration(scopesListener, shard, hosts)
		begin := time.Now()
		if err := s.ads.Set(rc); err != nil {
			return 0, 0, err
		}
		for {
			_, body, err := c.get(name, "")
			if err != nil {
				return 0, 0, err
			}
			if body == strconv.Itoa(version) {
				break
			}
			if err := ctx.Err(); err != nil {
				return 0, 0, fmt.Errorf("wait for the new route of %s: %w", name, err)
			}
		}
		times = append(times, float64(time.Since(begin).Microseconds())/1000)
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], nil
}

// cost takes Envoy's processor time for requests with and without the normaliser.
func (s *scopesBench) cost(ctx context.Context, o ScopesOptions, r *ScopesResult) error {
	err := s.listen(ctx, scopesPlain, func(m *hcmv3.HttpConnectionManager) {
		m.HttpFilters = m.GetHttpFilters()[1:]
		m.EarlyHeaderMutationExtensions = nil
	})
	if err != nil {
		return err
	}
	exact := s.hosts[0]
	kinds := []struct {
		listener     model.ListenerID
		host, header string
		out          *float64
		all          []float64
	}{
		{scopesPlain, exact, "x-fairlead-scope: " + xds.RouteConfigurationName(scopesPlain, benchShard(exact)) + "\r\n", &r.PlainMicros, nil},
		{scopesListener, exact, "", &r.ExactMicros, nil},
		{scopesListener, "a.wild.test", "", &r.WildcardMicros, nil},
	}
	for range o.Runs {
		for i := range kinds {
			k := &kinds[i]
			c, err := dialBench(s.port[k.listener])
			if err != nil {
				return err
			}
			before, err := s.envoy.CPU()
			if err != nil {
				c.conn.Close()
				return err
			}
			for range o.Requests {
				status, _, err := c.get(k.host, k.header)
				if err == nil && status != http.StatusOK {
					err = fmt.Errorf("ask %s: got %d", k.host, status)
				}
				if err != nil {
					c.conn.Close()
					return err
				}
			}
			after, err := s.envoy.CPU()
			if err := errors.Join(err, c.conn.Close()); err != nil {
				return err
			}
			k.all = append(k.all, float64((after-before).Nanoseconds())/1000/float64(o.Requests))
		}
	}
	for i := range kinds {
		*kinds[i].out = slices.Min(kinds[i].all)
	}
	r.ExactRatio = r.ExactMicros / r.PlainMicros
	return nil
}

// gather moves every host into the wildcard scope's one route configuration.
func (s *scopesBench) gather(ctx context.Context) error {
	var all []model.VirtualHost
	for _, shard := range xds.AllShards(scopesListener) {
		all = append(all, s.shards[shard]...)
		delete(s.shards, shard)
		if shard == xds.WildShard {
			s.shards[shard] = all
		}
		if err := s.ads.Set(xds.RouteConfiguration(scopesListener, shard, s.shards[shard])); err != nil {
			return err
		}
	}
	return s.ads.Acked(ctx, routesURL, xds.RouteConfigurationName(scopesListener, xds.WildShard))
}

// benchClient asks over one connection.
type benchClient struct {
	conn net.Conn
	r    *bufio.Reader
}

func dialBench(port uint16) (*benchClient, error) {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("connect to envoy: %w", err)
	}
	return &benchClient{c, bufio.NewReader(c)}, nil
}

func (c *benchClient) get(host, header string) (int, string, error) {
	if _, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: "+host+"\r\n"+header+"User-Agent: bench\r\nAccept: */*\r\n\r\n"); err != nil {
		return 0, "", fmt.Errorf("ask envoy: %w", err)
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return 0, "", fmt.Errorf("read answer: %w", err)
	}
	f := strings.Fields(line)
	if len(f) < 2 {
		return 0, "", fmt.Errorf("read answer: %q", line)
	}
	status, _ := strconv.Atoi(f[1])
	length := 0
	for line != "\r\n" {
		if line, err = c.r.ReadString('\n'); err != nil {
			return 0, "", fmt.Errorf("read answer: %w", err)
		}
		if v, ok := strings.CutPrefix(line, "content-length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(v))
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return 0, "", fmt.Errorf("read answer: %w", err)
	}
	return status, string(body), nil
}

func unusedPort() (uint16, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a port: %w", err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port(), nil
}
