package southbound

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	agentv1 "fairlead.dev/proto/agent/v1"
)

func decode(wire []byte, m proto.Message) error {
	return newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, m)
}

// TestMessagesTakeNoMoreMemory holds that what is small on the wire is not large in memory, and that the largest
// messages of an agent are taken.
func TestMessagesTakeNoMoreMemory(t *testing.T) {
	for name, wire := range map[string][]byte{
		"sessions":  bytes.Repeat(protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.BytesType), 0), 1<<22),
		"addresses": bytes.Repeat(protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), 0), 1<<23),
	} {
		if err := decode(wire, &agentv1.Report{}); !errors.Is(err, errLarge) {
			t.Errorf("%d bytes of empty %s: %v", len(wire), name, err)
		}
	}
	// A value in a list in a value, and so on: google.protobuf.Value's 6 is a list, whose 1 is a value.
	nested := []byte{}
	for range 10_000 {
		nested = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nested)
		nested = protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), nested)
	}
	if err := decode(nested, &structpb.Value{}); !errors.Is(err, errLarge) {
		t.Errorf("20,000 levels: %v", err)
	}
	if err := decode([]byte{0xff}, &agentv1.Report{}); err == nil {
		t.Error("what is no message was taken")
	}

	report := &agentv1.Report{AgentVersion: "v1", Figures: &agentv1.Figures{}}
	for i := range maxChecks {
		report.Checks = append(report.Checks, &agentv1.CheckResult{Name: fmt.Sprintf("%064d", i), Health: "Unhealthy"})
	}
	for i := range 20_000 {
		report.Figures.Requests = append(report.Figures.Requests, &agentv1.RequestFigures{Group: fmt.Sprintf("team-%d/app/80", i), Classes: []uint64{1 << 40}})
	}
	claims := &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{}}
	for i := range 60_000 {
		claims.InitialResourceVersions[fmt.Sprintf("%080d", i)] = "0123456789abcdef"
	}
	for _, m := range []proto.Message{report, claims} {
		wire, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := m.ProtoReflect().New().Interface()
		if err := decode(wire, got); err != nil || !proto.Equal(got, m) {
			t.Errorf("a message of %d bytes: %v", len(wire), err)
		}
	}
	// A field of a later version is not kept.
	wire := protowire.AppendBytes(protowire.AppendTag([]byte{}, 5000, protowire.BytesType), make([]byte, 1<<20))
	later := &agentv1.Report{}
	if err := decode(wire, later); err != nil || len(later.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("%d bytes of nobody's field are kept: %v", len(later.ProtoReflect().GetUnknown()), err)
	}
}

// TestTrimmedReportsHoldNothingElse holds that what the plane does not remember of a report is free.
func TestTrimmedReportsHoldNothingElse(t *testing.T) {
	const many = 200_000
	r := &agentv1.Report{
		Sessions: make([]*agentv1.Session, many), Vips: make([]*agentv1.VipState, many), Frontends: make([]*agentv1.FrontendState, many),
		Checks: make([]*agentv1.CheckResult, many), Ejected: make([]*agentv1.Ejected, many), Addresses: make([]string, many),
		Applied: &agentv1.Applied{Problems: make([]*agentv1.Problem, many)},
		Figures: &agentv1.Figures{Requests: make([]*agentv1.RequestFigures, many), Frontends: make([]*agentv1.FrontendFigures, many), Drops: map[string]uint64{}, Loads: make([]*agentv1.GroupLoad, many)},
		Flows:   &agentv1.Flows{Flows: make([]*agentv1.Flow, many)},
	}
	shared := &agentv1.BackendLoad{}
	for i := range many {
		r.Sessions[i], r.Vips[i], r.Frontends[i], r.Checks[i] = &agentv1.Session{}, &agentv1.VipState{}, &agentv1.FrontendState{}, &agentv1.CheckResult{}
		r.Ejected[i], r.Applied.Problems[i] = &agentv1.Ejected{}, &agentv1.Problem{}
		r.Figures.Requests[i], r.Figures.Frontends[i] = &agentv1.RequestFigures{}, &agentv1.FrontendFigures{}
		r.Figures.Loads[i] = &agentv1.GroupLoad{Backends: make([]*agentv1.BackendLoad, 100)}
		for j := range r.Figures.Loads[i].GetBackends() {
			r.Figures.Loads[i].Backends[j] = shared
		}
		r.Figures.Drops[fmt.Sprint(i)], r.Flows.Flows[i] = 1, &agentv1.Flow{}
	}
	r.Sessions[0].Advertised = make([]string, many)
	trim(r)
	loads := 0
	for _, g := range r.Figures.Loads {
		loads += cap(g.Backends)
	}
	for name, c := range map[string]struct{ holds, most int }{
		"sessions": {cap(r.Sessions), 2 * maxSessions}, "prefixes": {cap(r.Sessions[0].Advertised), 2 * maxVIPs}, "VIPs": {cap(r.Vips), 2 * maxVIPs},
		"frontends": {cap(r.Frontends), 2 * maxFrontends}, "checks": {cap(r.Checks), maxChecks + maxChecks/4}, "ejected": {cap(r.Ejected), maxFigures + maxFigures/4},
		"problems": {cap(r.Applied.Problems), 2 * maxProblems}, "requests": {cap(r.Figures.Requests), maxFigures + maxFigures/4},
		"figures of frontends": {cap(r.Figures.Frontends), 2 * maxFrontends}, "reasons": {len(r.Figures.Drops), maxReasons},
		"measured groups": {cap(r.Figures.Loads), 2 * maxMeasured}, "their backends": {loads, maxFigures + maxFigures/4}, "flows": {cap(r.Flows.Flows), maxFigures + maxFigures/4},
	} {
		if c.holds > c.most {
			t.Errorf("%d %s are held, want no more than %d", c.holds, name, c.most)
		}
	}
	long := strings.Repeat("x", 1<<20)
	if short := cut(long, maxName); len(short) != maxName {
		t.Errorf("%d bytes of a long text", len(short))
	}
}

// TestTrimmedReportsAreShort walks over all that a report can have, so that what is added to it one day is
// cut, too.
func TestTrimmedReportsAreShort(t *testing.T) {
	r := &agentv1.Report{}
	overfill(r.ProtoReflect(), strings.Repeat("x", 4096))
	overfill(r.ProtoReflect(), "short") // lists leave out what has a long name
	trim(r)
	var walk func(path string, m protoreflect.Message)
	check := func(path string, kind protoreflect.Kind, v protoreflect.Value) {
		switch {
		case kind == protoreflect.StringKind && len(v.String()) > maxMessage, kind == protoreflect.StringKind && len(v.String()) > maxName && !strings.HasSuffix(path, ".message"):
			t.Errorf("%s keeps %d bytes of text", path, len(v.String()))
		case kind == protoreflect.BytesKind && len(v.Bytes()) > maxName:
			t.Errorf("%s keeps %d bytes", path, len(v.Bytes()))
		case kind == protoreflect.MessageKind:
			walk(path, v.Message())
		}
	}
	walk = func(path string, m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			path := path + "." + string(f.Name())
			switch {
			case f.IsMap():
				v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
					check(path, f.MapKey().Kind(), k.Value())
					return true
				})
			case f.IsList():
				for i := range v.List().Len() {
					check(path, f.Kind(), v.List().Get(i))
				}
			default:
				check(path, f.Kind(), v)
			}
			return true
		})
	}
	walk("report", r.ProtoReflect())
}

// overfill gives all fields of a message long values, and its names one of its own.
func overfill(m protoreflect.Message, name string) {
	long := strings.Repeat("x", 4096)
	value := func(f protoreflect.FieldDescriptor, of protoreflect.Value) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.StringKind:
			if f.Name() == "name" {
				return protoreflect.ValueOfString(name)
			}
			return protoreflect.ValueOfString(long)
		case protoreflect.BytesKind:
			return protoreflect.ValueOfBytes([]byte(long))
		case protoreflect.MessageKind:
			overfill(of.Message(), name)
		}
		return of
	}
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString(long).MapKey(), m.NewField(f).Map().NewValue())
		case f.IsList():
			list := m.Mutable(f).List()
			list.Append(value(f, list.NewElement()))
		default:
			v := m.NewField(f)
			if f.Kind() == protoreflect.MessageKind {
				v = m.Mutable(f) // keeps what is there
			}
			m.Set(f, value(f, v))
		}
	}
}
