package gate

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// renewedBy is the metadata by which a renewed listener differs from what the plane wants.
// It means nothing to Envoy, but that the listener is another one (Envoy 1.40,
// ListenerMessageUtil::filterChainOnlyChange): the one before drains, and its sockets are
// handed on.
const renewedBy = "fairlead.dev/renewed"

// Renew has Envoy end the connections of a listener gently within its drain time ("Connection:
// close", GOAWAY), while new ones are taken as before; on false the listener is as the plane
// wants it again, if it was renewed. A listener that Envoy has not taken as the plane wants
// it is left alone: it has no connections, or is about to be replaced.
func (g *Gate) Renew(name string, on bool) {
	it := g.items[key{typeListener, name}]
	switch {
	case it == nil || it.live == nil || it.target == nil || it.base != it.target.Version || !on && !it.renewed:
		return
	case !on:
		g.pushAgain(it, it.target)
		return
	}
	var l listenerv3.Listener
	if proto.Unmarshal(it.target.Body.GetValue(), &l) != nil {
		return // it was read before
	}
	if l.Metadata == nil {
		l.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	}
	l.Metadata.FilterMetadata[renewedBy] = &structpb.Struct{Fields: map[string]*structpb.Value{"number": structpb.NewNumberValue(float64(g.bumps + 1))}}
	value, err := proto.Marshal(&l)
	if err != nil {
		return
	}
	r := *it.target
	r.Body = &anypb.Any{TypeUrl: string(typeListener), Value: value}
	g.pushAgain(it, &r)
	it.renewed = true
}
