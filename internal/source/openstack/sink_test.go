package openstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
	lab "fairlead.dev/lab/openstack"
)

// sink keeps what a source gives.
type sink struct {
	mu       sync.Mutex
	services map[model.UpstreamKey]*model.UpstreamService
	// log has a line for each call but those of Contact that say the same as the last.
	log      []string
	contact  string
	replaced int
	puts     int
}

func newSink() *sink {
	return &sink{services: map[model.UpstreamKey]*model.UpstreamService{}, contact: "none"}
}

func (s *sink) Replace(services []*model.UpstreamService) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services = map[model.UpstreamKey]*model.UpstreamService{}
	for _, service := range services {
		s.services[service.Key] = service
	}
	s.replaced++
	s.log = append(s.log, fmt.Sprintf("replace %d", len(services)))
}

func (s *sink) Put(services ...*model.UpstreamService) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, service := range services {
		s.services[service.Key] = service
		s.log = append(s.log, "put "+text(service))
	}
	s.puts += len(services)
}

func (s *sink) Remove(keys ...model.UpstreamKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.services, key)
		s.log = append(s.log, "remove "+key.Name)
	}
}

func (s *sink) Contact(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := "ok"
	if err != nil {
		now = cloud.ReasonOf(err) + ": " + err.Error()
	}
	if now != s.contact {
		s.contact = now
		s.log = append(s.log, "contact "+now)
	}
}

// take returns the log since the last call.
func (s *sink) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

func (s *sink) state() (contact string, replaced, puts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contact, s.replaced, s.puts
}

// all are the services, in no order.
func (s *sink) all() []*model.UpstreamService {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.services))
}

// texts are all services, sorted.
func (s *sink) texts() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, service := range s.services {
		all = append(all, text(service))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func (s *sink) get(name string) *model.UpstreamService {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, service := range s.services {
		if key.Name == name {
			return service
		}
	}
	return nil
}

// text is a service without what the tests of conversion look at, such as
// "team01 web port-80/TCP=10.0.0.1:8080 10.0.0.2:8080*3".
func text(s *model.UpstreamService) string {
	name := s.Labels[labelName]
	if s.Key.Name != s.Labels[labelID] {
		name += " pool"
	}
	return strings.TrimSpace(s.ScopeName + " " + name + " " + shape(s))
}

// shape is the ports of a service, each with its endpoints; then what is refused.
func shape(s *model.UpstreamService) string {
	var parts []string
	for _, p := range s.Ports {
		var endpoints []string
		for _, slice := range s.Slices {
			for _, port := range slice.Ports {
				if port.Name != p.Name {
					continue
				}
				for _, e := range slice.Endpoints {
					endpoints = append(endpoints, endpointText(e, port.Port))
				}
			}
		}
		parts = append(parts, fmt.Sprintf("%s/%s=%s", p.Name, p.Protocol, strings.Join(endpoints, " ")))
	}
	for _, r := range s.Refused {
		parts = append(parts, fmt.Sprintf("!%s %s: %s", r.Reason, r.Object, r.Message))
	}
	return strings.Join(parts, "; ")
}

func endpointText(e model.UpstreamEndpoint, port uint16) string {
	text := netip.AddrPortFrom(e.Address, port).String()
	if e.Weight != 1 {
		text += fmt.Sprintf("*%d", e.Weight)
	}
	switch {
	case e.Terminating && e.Serving && !e.Ready:
		text += "(draining)"
	case !e.Ready && !e.Serving && !e.Terminating:
		text += "(down)"
	case !e.Ready || !e.Serving || e.Terminating:
		text += fmt.Sprintf("(ready=%t serving=%t terminating=%t)", e.Ready, e.Serving, e.Terminating)
	}
	if e.Backup {
		text += "(backup)"
	}
	return text
}

// inMemory sends requests to a handler without a network, so that tests can run in the time
// of synctest.
type inMemory struct{ handler http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	recorder := httptest.NewRecorder()
	sent := r.Clone(r.Context())
	sent.Host = r.URL.Host
	if sent.Body == nil {
		sent.Body = http.NoBody
	}
	if err := serve(m.handler, recorder, sent); err != nil {
		return nil, err
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := recorder.Result()
	resp.Request = r
	return resp, nil
}

// serve turns the end of a connection into an error of it.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		switch lost := recover().(type) {
		case nil:
		case error:
			if !errors.Is(lost, http.ErrAbortHandler) {
				panic(lost)
			}
			err = errors.New("read: connection reset by peer")
		default:
			panic(lost)
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

// simulated is a source of a simulated cloud, in the time of synctest.
type simulated struct {
	*lab.Simulated
	*sink
	source *Source
	stop   context.CancelFunc
	done   chan struct{}
}

var testLog = slog.New(slog.DiscardHandler)

const adminCloud = `
clouds:
  c:
    auth: {auth_url: "http://cloud.example/identity/v3", username: admin, password: secret, project_name: admin, user_domain_name: Default}
`

// start runs a source of the cloud until the test ends.
func start(t *testing.T, s *lab.Simulated, clouds string, change func(*Config)) *simulated {
	t.Helper()
	if s.ChangeTime == 0 {
		s.ChangeTime = time.Second
	}
	c := &simulated{Simulated: s, sink: newSink(), done: make(chan struct{})}
	credentials, err := ParseClouds([]byte(clouds), "")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Name: "up01", Credentials: credentials, Sink: c.sink, Log: testLog,
		Allow: cloud.Allow{PlainHTTP: true}, base: inMemory{s},
	}
	if change != nil {
		change(&cfg)
	}
	if c.source, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.stop = func() {
		cancel()
		<-c.done
	}
	go func() {
		defer close(c.done)
		c.source.Run(ctx)
	}()
	t.Cleanup(c.stop)
	return c
}
