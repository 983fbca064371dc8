package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	// What listeners, routes and matchers carry inside an Any must be known to be read.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"fairlead.dev/internal/delta"
)

// ErrUnreadable says that a resource of the plane cannot be read.
var ErrUnreadable = errors.New("unreadable resource")

// readScope is the name of the route configuration that a scope uses.
func readScope(r *delta.Resource) (string, error) {
	var s routev3.ScopedRouteConfiguration
	if err := unmarshal(r, &s); err != nil {
		return "", err
	}
	return s.GetRouteConfigurationName(), nil
}

// form is one version of a virtual host, as it came.
type form struct {
	raw      []byte // the VirtualHost message; shared with the resource it came in
	hash     string
	domains  []string
	clusters []string // sorted, unique
	standIn  bool     // made here: answers 503
	instead  *form    // its stand-in, once it was needed
}

// routeTable is a route configuration taken apart into its virtual hosts.
type routeTable struct {
	shell     []byte // every other field, encoded
	shellHash string
	order     []string // names of the virtual hosts
	forms     map[string]*form
}

const virtualHostsField protowire.Number = 2

// readRoutes takes a RouteConfiguration apart. Forms of known that did not change
// are used again, so only changed virtual hosts are decoded.
func readRoutes(r *delta.Resource, known map[string]*form) (*routeTable, error) {
	t := &routeTable{forms: map[string]*form{}}
	byHash := make(map[string]string, len(known))
	for name, f := range known {
		byHash[f.hash] = name
	}
	rest := r.Body.GetValue()
	for len(rest) > 0 {
		number, kind, n := protowire.ConsumeField(rest)
		if n < 0 {
			return nil, unreadable(r, protowire.ParseError(n))
		}
		_, _, tag := protowire.ConsumeTag(rest)
		if number != virtualHostsField || kind != protowire.BytesType {
			t.shell = append(t.shell, rest[:n]...)
			rest = rest[n:]
			continue
		}
		raw, _ := protowire.ConsumeBytes(rest[tag:])
		rest = rest[n:]
		hash := hashOf(raw)
		if name, ok := byHash[hash]; ok && t.forms[name] == nil {
			t.order, t.forms[name] = append(t.order, name), known[name]
			continue
		}
		var v routev3.VirtualHost
		if err := proto.Unmarshal(raw, &v); err != nil {
			return nil, unreadable(r, err)
		}
		if t.forms[v.GetName()] != nil || v.GetName() == "" {
			return nil, unreadable(r, fmt.Errorf("virtual host %q is a duplicate or has no name", v.GetName()))
		}
		t.order = append(t.order, v.GetName())
		t.forms[v.GetName()] = &form{raw: raw, hash: hash, domains: v.GetDomains(), clusters: clustersOf(&v)}
	}
	if err := proto.Unmarshal(t.shell, new(routev3.RouteConfiguration)); err != nil {
		return nil, unreadable(r, err)
	}
	t.shellHash = hashOf(t.shell)
	return t, nil
}

// clustersOf gives the names of the clusters that a virtual host may send requests to, or
// questions about requests, sorted. Clusters chosen by a request header cannot be known.
func clustersOf(v *routev3.VirtualHost) []string {
	names := map[string]struct{}{}
	walk(v.ProtoReflect(), func(m protoreflect.Message) {
		name := ""
		switch part := m.Interface().(type) {
		case *routev3.RouteAction:
			name = part.GetCluster()
		case *routev3.WeightedCluster_ClusterWeight:
			name = part.GetName()
		case *routev3.RouteAction_RequestMirrorPolicy:
			name = part.GetCluster()
		case *corev3.GrpcService_EnvoyGrpc:
			name = part.GetClusterName()
		case *corev3.HttpUri:
			name = part.GetCluster()
		}
		if name != "" {
			names[name] = struct{}{}
		}
	})
	return slices.Sorted(maps.Keys(names))
}

// walk visits a message and every message within it, also those inside an Any whose
// type is known here.
func walk(m protoreflect.Message, visit func(protoreflect.Message)) {
	if any, ok := m.Interface().(*anypb.Any); ok {
		if inner, err := any.UnmarshalNew(); err == nil {
			walk(inner.ProtoReflect(), visit)
		}
		return
	}
	visit(m)
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					walk(v.Message(), visit)
					return true
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				walk(value.List().Get(i).Message(), visit)
			}
		default:
			walk(value.Message(), visit)
		}
		return true
	})
}

func unmarshal(r *delta.Resource, m proto.Message) error {
	if err := r.Body.UnmarshalTo(m); err != nil {
		return unreadable(r, err)
	}
	return nil
}

func unreadable(r *delta.Resource, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnreadable, r.Name, err)
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}
