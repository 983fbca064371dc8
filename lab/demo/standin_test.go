package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/driver/address"
	"fairlead.dev/internal/driver/bgp"
	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/cli"
	"fairlead.dev/lab/program"
	"fairlead.dev/lab/rig"
)

// The demo judges. To see that it judges rightly, these tests let it judge
// stand-ins for plane, agent, Envoy and kubectl, as small as they can be, that
// work, or have one of these faults. The stand-ins are this test binary.
const faultsVariable = "FAIRLEAD_DEMO_TEST_FAULTS"

const (
	faultSkew      = "skew"      // Envoy gives team01's clusters equal shares
	faultForgetful = "forgetful" // the agent holds nothing without a plane
	faultLame      = "lame"      // the agent takes its time to start Envoy again
	faultDead      = "dead"      // the plane ends at once
	faultAbrupt    = "abrupt"    // a cordoned machine withdraws before its connections have ended
)

func faulty(fault string) bool {
	return slices.Contains(strings.Split(os.Getenv(faultsVariable), ","), fault)
}

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	var err error
	switch base := filepath.Base(os.Args[0]); {
	case base == "kubectl":
		err = kubectl(os.Args[1:])
	case base == "envoy":
		err = envoy(ctx, os.Args[1], os.Args[2])
	case len(os.Args) > 1 && os.Args[1] == "lab":
		root := &cobra.Command{Use: "fairlead", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(cli.Commands())
		err = root.ExecuteContext(ctx)
	case len(os.Args) > 1 && os.Args[1] == "plane":
		err = plane(ctx)
	case len(os.Args) > 1 && os.Args[1] == "token":
		fmt.Println("a-token")
	case len(os.Args) > 1 && os.Args[1] == "agent":
		err = agent(ctx)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fairlead:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// flag returns the value after a flag of this process's command line.
func flag(name string) string {
	i := slices.Index(os.Args, name)
	if i < 0 || i+1 == len(os.Args) {
		return ""
	}
	return os.Args[i+1]
}

// object is a Kubernetes object, read as loosely as it can be.
type object map[string]any

func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func (o object) key() string {
	return strings.ToLower(fmt.Sprintf("%v/%v", o.at("kind"), o.at("metadata", "name")))
}

// plane keeps objects, tells agents of them, and says that all is well.
func plane(ctx context.Context) error {
	if faulty(faultDead) {
		return fmt.Errorf("etcd: no space left on device")
	}
	file := filepath.Join(flag("--data-dir"), "objects.json")
	var mu sync.Mutex
	objects := map[string]object{}
	if raw, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(raw, &objects); err != nil {
			return err
		}
	}
	seen := map[string]time.Time{}
	locked := func(f http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			f(w, r)
		}
	}
	mux := http.NewServeMux()
	ok := func(http.ResponseWriter, *http.Request) {}
	mux.HandleFunc("/readyz", ok)
	mux.HandleFunc("/healthz", ok)
	mux.HandleFunc("GET /objects", locked(func(w http.ResponseWriter, r *http.Request) {
		if name := r.FormValue("agent"); name != "" {
			seen[name] = time.Now()
		}
		_ = json.NewEncoder(w).Encode(objects)
	}))
	mux.HandleFunc("POST /objects", locked(func(w http.ResponseWriter, r *http.Request) {
		var o object
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		objects[o.key()] = o
		raw, _ := json.Marshal(objects)
		if err := os.WriteFile(file+".new", raw, 0o600); err == nil {
			_ = os.Rename(file+".new", file)
		}
	}))
	mux.HandleFunc("GET /v1/status", locked(func(w http.ResponseWriter, _ *http.Request) {
		var s v1.Status
		for name, at := range seen {
			s.Machines = append(s.Machines, v1.MachineStatus{Name: name, Connected: time.Since(at) < time.Second})
		}
		for name := range seen {
			s.Sessions = append(s.Sessions, v1.SessionStatus{Machine: name, Session: v1.Session{State: v1.SessionEstablished}})
		}
		for i, address := range standInVIPs {
			owner := v1.Object{Kind: []string{"Gateway", "IngressRoute"}[i%2]}
			s.VIPs = append(s.VIPs, v1.VIPStatus{Assignment: v1.Assignment{Address: address, Owner: owner}})
		}
		for key, o := range objects {
			if kind, _, _ := strings.Cut(key, "/"); strings.HasSuffix(kind, "route") {
				s.Routes = append(s.Routes, v1.RouteStatus{Kind: fmt.Sprint(o["kind"]), State: "programmed"})
			}
		}
		if objects["service/echo"] != nil {
			s.Frontends = []v1.FrontendStatus{{
				Owner: v1.Object{Kind: "Service"},
				At:    []v1.FrontendAt{{Machine: "edge-1", State: v1.FrontendRefused, Message: "a stand-in balances nothing"}},
			}}
		}
		_ = json.NewEncoder(w).Encode(s)
	}))
	mux.HandleFunc("GET "+v1.FlowsPath, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v1.FlowList{}) })
	return serve(ctx, mux, flag("--console-address"), ":"+flag("--agent-port"))
}

func serve(ctx context.Context, h http.Handler, addresses ...string) error {
	ended := make(chan error, len(addresses)+1)
	for _, a := range addresses {
		l, err := net.Listen("tcp", a)
		if err != nil {
			return err
		}
		go func() { ended <- http.Serve(l, h) }()
	}
	context.AfterFunc(ctx, func() { ended <- nil })
	return <-ended
}

// kubectl speaks to the plane at its console: apply -f -, patch and get of one object.
func kubectl(args []string) error {
	const url = "http://127.0.0.1:7080/objects"
	if slices.Equal(args, program.Kubectl.Ask) {
		fmt.Println("Client Version: v1.0.0")
		return nil
	}
	if slices.Contains(args, "apply") {
		raw, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		for doc := range strings.SplitSeq(string(raw), "---\n") {
			var o object
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				return err
			}
			body, _ := json.Marshal(o)
			resp, err := http.Post(url, "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			fmt.Println(o.key(), "applied")
		}
		return nil
	}
	if i := slices.Index(args, "patch"); i >= 0 {
		_, name, _ := strings.Cut(args[i+1], "/")
		var o object
		if err := json.Unmarshal([]byte(args[len(args)-1]), &o); err != nil {
			return err
		}
		o["kind"], o["metadata"] = "Machine", map[string]any{"name": name}
		body, _ := json.Marshal(o)
		resp, err := http.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	objects := map[string]object{}
	if err := json.NewDecoder(resp.Body).Decode(&objects); err != nil {
		return err
	}
	kind, name, _ := strings.Cut(args[slices.Index(args, "get")+1], "/")
	kind, _, _ = strings.Cut(kind, ".")
	o, found := objects[strings.TrimSuffix(kind, "s")+"/"+name]
	if !found {
		return fmt.Errorf("%s %q not found", kind, name)
	}
	isTrue := func(condition string) []map[string]string {
		return []map[string]string{{"type": condition, "status": "True"}}
	}
	o["status"] = map[string]any{
		"currentStatus": "valid", "conditions": isTrue("Programmed"),
		"parents": []any{map[string]any{"conditions": isTrue("Accepted")}},
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

// agent copies the plane's objects to where its Envoy reads them, keeps that running,
// and announces VIPs while it serves.
func agent(ctx context.Context) error {
	file := filepath.Join(flag("--data-dir"), "objects.json")
	var ready, serving atomic.Bool
	var deaths atomic.Int64 // of Envoys
	var known atomic.Pointer[map[string]object]
	edge := flag("--role") != "backend"
	go func() {
		if !edge {
			return
		}
		if err := announce(ctx, &known, &serving, &deaths); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	go func() {
		client := &http.Client{Timeout: time.Second}
		for ; ; time.Sleep(10 * time.Millisecond) {
			raw := []byte("{}")
			resp, err := client.Get("http://" + flag("--plane") + "/objects?agent=" + flag("--name"))
			if err == nil {
				raw, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if err != nil && !faulty(faultForgetful) {
				continue
			}
			if now := map[string]object{}; err == nil && json.Unmarshal(raw, &now) == nil {
				known.Store(&now)
			}
			if os.WriteFile(file+".new", raw, 0o600) == nil && os.Rename(file+".new", file) == nil {
				ready.Store(true)
			}
		}
	}()
	go func() {
		for edge && ctx.Err() == nil {
			c := exec.CommandContext(ctx, flag("--envoy"), file, flag("--name"))
			if c.Start() == nil {
				go func() {
					for c.ProcessState == nil && ctx.Err() == nil {
						if conn, err := net.Dial("tcp", "127.0.0.1:80"); err == nil {
							_ = conn.Close()
							serving.Store(true)
							return
						}
						time.Sleep(5 * time.Millisecond)
					}
				}()
				_ = c.Wait()
				serving.Store(false)
				deaths.Add(1)
			}
			// The next Envoy takes as long to start as a real one does: a router that is busy, and
			// hears within milliseconds that VIPs are gone and back, need not tell its kernel.
			start := time.Second
			if faulty(faultLame) {
				start += 1500 * time.Millisecond
			}
			time.Sleep(start)
		}
	}()
	return serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "nothing of the plane yet", http.StatusServiceUnavailable)
		}
	}), flag("--console-address"))
}

// standInVIPs are the Gateway's and the IngressRoutes', by turns.
var standInVIPs = []netip.Addr{
	netip.MustParseAddr("203.0.113.80"), netip.MustParseAddr("203.0.113.81"),
	netip.MustParseAddr("2001:db8:80::80"), netip.MustParseAddr("2001:db8:80::81"),
}

// announce has the real drivers hold and advertise the VIPs while Envoy serves and the
// machine is not cordoned.
func announce(ctx context.Context, known *atomic.Pointer[map[string]object], serving *atomic.Bool, deaths *atomic.Int64) error {
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	holder, err := address.New(log)
	if err != nil {
		return err
	}
	speaker := bgp.New(bgp.Config{Log: log})
	go func() { _ = speaker.Run(ctx) }()
	var cordoned time.Time
	mourned := deaths.Load()
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		objects := known.Load()
		if objects == nil || (*objects)["addresspool/public"] == nil || (*objects)["bgppeer/upstream"] == nil {
			continue // they come one after the other
		}
		if err := holder.Set(standInVIPs); err != nil {
			return err
		}
		// Each death is told, however soon the next Envoy serves: on a busy machine that may be
		// before this loop comes round.
		if n := deaths.Load(); n != mourned {
			mourned = n
			if err := speaker.Withdraw(ctx); err != nil {
				return err
			}
			continue
		}
		out := false
		if is, _ := (*objects)["machine/"+flag("--name")].at("spec", "cordoned").(bool); is {
			if cordoned.IsZero() {
				cordoned = time.Now()
			}
			out = faulty(faultAbrupt) || time.Since(cordoned) > time.Second
		} else {
			cordoned = time.Time{}
		}
		peer := (*objects)["bgppeer/upstream"]
		want := model.Speaking{Machine: flag("--name"), Peers: []model.Peer{{
			Name: "upstream", Address: netip.MustParseAddr(peer.at("spec", "address").(string)),
			LocalASN: rig.EdgeASN, PeerASN: rig.RouterASN, HoldTime: 3 * time.Second, Keepalive: time.Second,
			ConnectRetry: time.Second, RestartTime: 15 * time.Second, IPv4: true, IPv6: true, MaxPrefixes: 1000,
			BFD: &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3},
		}}}
		for _, vip := range standInVIPs {
			if serving.Load() && !out {
				want.Prefixes = append(want.Prefixes, model.Advertisement{Prefix: netip.PrefixFrom(vip, vip.BitLen())})
			}
		}
		speaker.Set(want)
	}
	return nil
}

// envoy proxies by what the agent wrote last. That of a cordoned machine ends each
// connection with its answer.
func envoy(ctx context.Context, file, machine string) error {
	var objects atomic.Pointer[map[string]object]
	read := func() {
		raw, err := os.ReadFile(file)
		now := map[string]object{}
		if err == nil && json.Unmarshal(raw, &now) == nil {
			objects.Store(&now)
		}
	}
	objects.Store(&map[string]object{})
	read()
	go func() {
		for ; ; time.Sleep(10 * time.Millisecond) {
			read()
		}
	}()
	var turns sync.Map // by host, so that each host's shares come out even
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Context().Value(upstream{}).(string)
		},
	}
	return serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if is, _ := (*objects.Load())["machine/"+machine].at("spec", "cordoned").(bool); is && !faulty(faultAbrupt) {
			w.Header().Set("Connection", "close")
		}
		counter, _ := turns.LoadOrStore(r.Host, new(atomic.Uint64))
		turn := counter.(*atomic.Uint64).Add(1)
		backends := endpoints(*objects.Load(), choose(*objects.Load(), r.Host, turn))
		if len(backends) == 0 {
			http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), upstream{}, backends[turn%uint64(len(backends))])))
	}), ":80")
}

type upstream struct{}

// choose picks a service of the route that has the host, by weight. Multiples of
// the golden ratio spread evenly: the shares must not depend on luck.
func choose(objects map[string]object, host string, turn uint64) string {
	var refs []object
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if v["weight"] != nil {
				refs = append(refs, v)
			}
			for _, child := range v {
				collect(child)
			}
		case []any:
			for _, child := range v {
				collect(child)
			}
		}
	}
	for _, o := range objects {
		names, _ := o.at("spec", "hostnames").([]any)
		if o.at("spec", "virtualhost", "fqdn") == host || slices.Contains(names, any(host)) {
			routes, _ := o.at("spec", "routes").([]any)
			for _, r := range routes {
				if to, ok := object(r.(map[string]any)).at("delegate", "name").(string); ok {
					collect(map[string]any(objects["ingressroute/"+to]))
				}
			}
			collect(map[string]any(o))
		}
	}
	if faulty(faultSkew) && strings.HasPrefix(host, "team01") {
		for i := range refs {
			refs[i] = object{"name": refs[i]["name"], "weight": 1.0}
		}
	}
	var sum float64
	for _, r := range refs {
		sum += r["weight"].(float64)
	}
	_, at := math.Modf(float64(turn) * math.Phi)
	at *= sum
	for _, r := range refs {
		if at -= r["weight"].(float64); at < 0 {
			return fmt.Sprint(r["name"])
		}
	}
	return ""
}

// endpoints returns the addresses of a service.
func endpoints(objects map[string]object, service string) []string {
	slice, ok := objects["endpointslice/"+service+"-1"]
	if !ok {
		return nil
	}
	var found []string
	port := slice.at("ports").([]any)[0].(map[string]any)["port"]
	for _, e := range slice.at("endpoints").([]any) {
		found = append(found, net.JoinHostPort(fmt.Sprint(e.(map[string]any)["addresses"].([]any)[0]), fmt.Sprint(port)))
	}
	return found
}
