package delta

import (
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

type request = discoveryv3.DeltaDiscoveryRequest

// script drives one stream by hand and compares what comes out as text.
type script struct {
	t      *testing.T
	set    *Set
	stream *Stream
	rev    uint64
	nonce  map[Type]string
}

func newScript(t *testing.T, o Options) *script {
	s := &script{t: t, set: NewSet(), nonce: map[Type]string{}}
	s.stream = NewStream(o, s.set)
	return s
}

// update takes "name=content" and "name-".
func (s *script) update(t Type, changes ...string) int {
	s.rev++
	return s.set.Update(Revision{1, s.rev}, parseChanges(t, changes...))
}

func parseChanges(t Type, changes ...string) []Change {
	var cs []Change
	for _, c := range changes {
		if name, content, ok := strings.Cut(c, "="); ok {
			cs = append(cs, Change{Type: t, Name: name, Resource: text(name, content)})
		} else {
			cs = append(cs, Change{Type: t, Name: strings.TrimSuffix(c, "-")})
		}
	}
	return cs
}

func (s *script) receive(req *request) {
	s.t.Helper()
	if req.TypeUrl == "" {
		req.TypeUrl = string(typeA)
	}
	if err := s.stream.Receive(req); err != nil {
		s.t.Fatal(err)
	}
	if err := verify(s.stream); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) subscribe(names ...string) {
	s.t.Helper()
	s.receive(&request{ResourceNamesSubscribe: names})
}

func (s *script) ack(types ...Type) {
	s.t.Helper()
	for _, t := range append(types, typeA)[:max(1, len(types))] {
		s.receive(&request{TypeUrl: string(t), ResponseNonce: s.nonce[t]})
	}
}

func (s *script) nack(message string) {
	s.t.Helper()
	s.receive(&request{ResponseNonce: s.nonce[typeA], ErrorDetail: &status.Status{Message: message}})
}

// sends compares the next response: "name=content", "name-", or "nothing".
func (s *script) sends(want ...string) {
	s.t.Helper()
	resp := s.stream.Next()
	got := []string{"nothing"}
	if resp != nil {
		got = nil
		s.nonce[Type(resp.GetTypeUrl())] = resp.GetNonce()
		for _, r := range resp.GetResources() {
			got = append(got, r.GetName()+"="+r.GetVersion())
		}
		for _, n := range resp.GetRemovedResources() {
			got = append(got, n+"-")
		}
		if resp.GetSystemVersionInfo() != s.set.Revision().String() {
			s.t.Errorf("system version %s, set is at %s", resp.GetSystemVersionInfo(), s.set.Revision())
		}
	}
	if !slices.Equal(got, want) {
		s.t.Fatalf("sent %v, want %v", got, want)
	}
	if err := verify(s.stream); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) state(name string, want State) {
	s.t.Helper()
	if got := s.stream.State(typeA, name); got != want {
		s.t.Fatalf("%s is %+v, want %+v", name, got, want)
	}
}

func (s *script) events(want ...string) {
	s.t.Helper()
	var got []string
	for _, e := range s.stream.Events() {
		verb := "+"
		if e.Refused {
			verb = "!" + e.Message + "!"
		}
		got = append(got, verb+e.Name+"="+e.Version)
	}
	if !slices.Equal(got, want) {
		s.t.Fatalf("events %v, want %v", got, want)
	}
}
