package fleet

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// raw leaves messages as they are on the wire: decoding everything a thousand times would measure that.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is no message of the protocol", v)
	}
	return b, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T cannot receive messages of the protocol", v)
	}
	*to = append((*to)[:0], data...)
	return nil
}

// world is what a machine that follows everything has: versions by type and name.
type world struct {
	mu   sync.Mutex
	held map[string]map[string]string
}

// shared is a copy for claims, the same for all who ask before it changes.
func (w *world) shared() map[string]map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// take notes resources that came, and those that went. The maps that were handed out stay as they are.
func (w *world) take(kind string, came map[string]string, went []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := make(map[string]map[string]string, len(w.held)+1)
	for t, names := range w.held {
		next[t] = names
	}
	names := make(map[string]string, len(w.held[kind])+len(came))
	for name, version := range w.held[kind] {
		names[name] = version
	}
	for name, version := range came {
		names[name] = version
	}
	for _, name := range went {
		delete(names, name)
	}
	next[kind], w.held = names, next
}

// response is what a machine needs of a DeltaDiscoveryResponse.
type response struct {
	kind, nonce string
	checkpoint  delta.Revision
}

// Numbers of the fields of envoy.service.discovery.v3.DeltaDiscoveryResponse and of its Resource.
const (
	fieldResources = 2
	fieldTypeURL   = 4
	fieldNonce     = 5
	fieldRemoved   = 6

	fieldVersion = 1
	fieldBody    = 2
	fieldName    = 3
)

// scan reads a response without decoding its resources. keep, if there is one, notes them.
func scan(message []byte, keep *world) (r response, err error) {
	came := map[string]string{}
	var went []string
	var last []byte
	err = fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case fieldTypeURL:
			r.kind = string(value)
		case fieldNonce:
			r.nonce = string(value)
		case fieldRemoved:
			if keep != nil {
				went = append(went, string(value))
			}
		case fieldResources:
			var name, version string
			if err := fields(value, func(number protowire.Number, value []byte) error {
				switch number {
				case fieldBody:
					last = value
				case fieldName:
					if keep != nil {
						name = string(value)
					}
				case fieldVersion:
					if keep != nil {
						version = string(value)
					}
				}
				return nil
			}); err != nil {
				return err
			}
			if keep != nil {
				came[name] = version
			}
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("read a response: %w", err)
	}
	// A checkpoint is always sent anew, and what a machine must know about itself is no other's.
	if keep != nil && r.kind != agentv1.CheckpointType && r.kind != agentv1.MachineConfigType {
		keep.take(r.kind, came, went)
	}
	if r.kind == agentv1.CheckpointType && last != nil {
		var body anypb.Any
		var c agentv1.Checkpoint
		if err := proto.Unmarshal(last, &body); err != nil {
			return r, fmt.Errorf("read a checkpoint: %w", err)
		}
		if err := body.UnmarshalTo(&c); err != nil {
			return r, fmt.Errorf("read a checkpoint: %w", err)
		}
		r.checkpoint = delta.Revision{Epoch: c.GetEpoch(), Number: c.GetRevision()}
	}
	return r, nil
}

// fields calls f for each field of a message that has a length.
func fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(number, value); err != nil {
			return err
		}
	}
	return nil
}
