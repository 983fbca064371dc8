package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// helpers are the services that policies ask, in one: it counts, it lets pass or not, and it
// collects. They answer at one port over gRPC and at another over HTTP.
type helpers struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	authv3.UnimplementedAuthorizationServer
	logsv1.UnimplementedLogsServiceServer

	mu          sync.Mutex
	descriptors map[string]int               // how often each was asked for, "domain key=value ..."
	lines       map[string]map[string]string // last access log record of each path, by field
	spans       map[string]bool              // "service trace-id"
}

// Each user may do this many requests.
const userLimit = 3

// ShouldRateLimit lets each descriptor pass a few times.
func (h *helpers) ShouldRateLimit(_ context.Context, q *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}
	for _, d := range q.GetDescriptors() {
		words := []string{q.GetDomain()}
		for _, e := range d.GetEntries() {
			words = append(words, e.GetKey()+"="+e.GetValue())
		}
		key := strings.Join(words, " ")
		h.descriptors[key]++
		code := ratelimitv3.RateLimitResponse_OK
		if h.descriptors[key] > userLimit {
			code, out.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT, ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
		out.Statuses = append(out.Statuses, &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: code})
	}
	return out, nil
}

// Check lets requests pass that have the token.
func (h *helpers) Check(_ context.Context, q *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	if q.GetAttributes().GetRequest().GetHttp().GetHeaders()["x-token"] == "good" {
		return &authv3.CheckResponse{Status: &status.Status{Code: int32(codes.OK)}, HttpResponse: &authv3.CheckResponse_OkResponse{
			OkResponse: &authv3.OkHttpResponse{Headers: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-user", Value: "alice"}}}},
		}}, nil
	}
	return &authv3.CheckResponse{Status: &status.Status{Code: int32(codes.PermissionDenied)}, HttpResponse: &authv3.CheckResponse_DeniedResponse{
		DeniedResponse: &authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: typev3.StatusCode_Unauthorized}, Body: "who are you?"},
	}}, nil
}

// ServeHTTP is the same over HTTP, below /check.
func (h *helpers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/check/") && r.Header.Get("X-Token") == "good" {
		w.Header().Set("X-User", "bob")
		return
	}
	http.Error(w, "who are you?", http.StatusForbidden)
}

// Export takes access logs.
func (h *helpers) Export(_ context.Context, q *logsv1.ExportLogsServiceRequest) (*logsv1.ExportLogsServiceResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range q.GetResourceLogs() {
		for _, s := range r.GetScopeLogs() {
			for _, l := range s.GetLogRecords() {
				fields := map[string]string{}
				for _, a := range l.GetAttributes() {
					fields[a.GetKey()] = a.GetValue().GetStringValue()
				}
				h.lines[fields["path"]] = fields
			}
		}
	}
	return &logsv1.ExportLogsServiceResponse{}, nil
}

// spanService takes spans: both services of a collector call their method Export.
type spanService struct {
	tracev1.UnimplementedTraceServiceServer
	*helpers
}

func (h spanService) Export(_ context.Context, q *tracev1.ExportTraceServiceRequest) (*tracev1.ExportTraceServiceResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		service := ""
		for _, a := range r.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				h.spans[service+" "+hex.EncodeToString(span.GetTraceId())] = true
			}
		}
	}
	return &tracev1.ExportTraceServiceResponse{}, nil
}

// logged are the fields of the last line about a path, sorted; nil when there is none.
func (h *helpers) logged(path string) (fields []string, status string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.lines[path])), h.lines[path]["status"]
}

// startHelpers runs the services in a machine and returns where: gRPC, HTTP.
func startHelpers(t *testing.T, m *lab.Machine) (h *helpers, grpcAt, httpAt rig.Backend) {
	t.Helper()
	h = &helpers{descriptors: map[string]int{}, lines: map[string]map[string]string{}, spans: map[string]bool{}}
	listen := func(port int) (rig.Backend, func() error, func()) {
		address := netip.AddrPortFrom(m.Addr4(), uint16(port))
		l, err := m.Listen(t.Context(), "tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		b := rig.Backend{Name: m.Name() + "-" + strconv.Itoa(port), Cluster: m.Name(), Address: address}
		if port == 9000 {
			s := grpc.NewServer()
			ratelimitv3.RegisterRateLimitServiceServer(s, h)
			authv3.RegisterAuthorizationServer(s, h)
			logsv1.RegisterLogsServiceServer(s, h)
			tracev1.RegisterTraceServiceServer(s, spanService{helpers: h})
			return b, func() error { return s.Serve(l) }, s.Stop
		}
		s := &http.Server{Handler: h} //nolint:gosec // a test's
		return b, func() error { return s.Serve(l) }, func() { _ = s.Close() }
	}
	run := func(port int) rig.Backend {
		b, serve, stop := listen(port)
		var ended sync.WaitGroup
		ended.Go(func() { _ = serve() })
		t.Cleanup(func() {
			stop()
			ended.Wait()
		})
		return b
	}
	return h, run(9000), run(9001)
}

// policy is a policy of a namespace for one target: "Kind name" or "Kind name section".
func policy(kind, namespace, name, target, spec string) string {
	words := strings.Fields(target)
	group := map[string]string{"Service": "", "IngressRoute": "contour.heptio.com"}
	of, named := group[words[0]]
	if !named {
		of = "gateway.networking.k8s.io"
	}
	section := ""
	if len(words) == 3 {
		section = ", sectionName: " + words[2]
	}
	return fmt.Sprintf("apiVersion: fairlead.dev/v1alpha1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec:\n  targetRefs: [{group: %q, kind: %s, name: %s%s}]\n  %s\n",
		kind, name, namespace, of, words[0], words[1], section, strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
}
