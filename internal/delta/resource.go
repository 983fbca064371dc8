package delta

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Type is a resource type, as a type URL.
type Type string

// Resource is one named thing of some type. It is never changed after it was
// given to a Set: Sets, streams and responses share its Body.
type Resource struct {
	Name string
	// Version is a hash of the content: equal versions mean equal bodies. An
	// empty one is filled in by Set.Update.
	Version string
	Body    *anypb.Any
}

// NewResource packs m, with the same bytes and version for equal messages.
func NewResource(name string, m proto.Message) (Resource, error) {
	body := new(anypb.Any)
	if err := anypb.MarshalFrom(body, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return Resource{}, fmt.Errorf("pack resource %s: %w", name, err)
	}
	return Resource{Name: name, Version: contentVersion(body), Body: body}, nil
}

// contentVersion is 128 bits of SHA-256 in hexadecimal, never empty.
func contentVersion(body *anypb.Any) string {
	sum := sha256.Sum256(body.GetValue())
	return hex.EncodeToString(sum[:16])
}

// Change is one difference of a Set.
type Change struct {
	Type Type
	Name string
	// Resource is the new content; nil removes the name.
	Resource *Resource
}

// entry is a resource as a Set holds it: packed once for all its subscribers.
type entry struct {
	resource Resource
	wire     *discoveryv3.Resource
	size     int
}

func newEntry(name string, r Resource) *entry {
	r.Name = name
	if r.Version == "" {
		r.Version = contentVersion(r.Body)
	}
	wire := &discoveryv3.Resource{Name: name, Version: r.Version, Resource: r.Body}
	return &entry{resource: r, wire: wire, size: proto.Size(wire) + fieldOverhead}
}

// version is the version that e stands for; absence is the empty version.
func (e *entry) version() string {
	if e == nil {
		return ""
	}
	return e.resource.Version
}

// fieldOverhead is the tag and the length of one field of a response, at most.
const fieldOverhead = 6
