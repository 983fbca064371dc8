package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/past"
)

// Keys of packed values begin with the kind of the value. They are written to files and Secrets.
const (
	packedListener = "listener"
	packedHost     = "host"
	packedTLS      = "tls"
	packedView     = "view"
	packedGroup    = "group"
)

// packedNote is what a packed step says beside what changed.
type packedNote struct {
	Epoch    uint64         `json:"epoch,omitempty"`
	Revision uint64         `json:"revision,omitempty"`
	Count    int            `json:"count,omitempty"`
	Owners   []model.Object `json:"owners,omitempty"`
	Mark     *Mark          `json:"mark,omitempty"`
}

// packedBase is what a packed state says beside it.
type packedBase struct {
	LetGo int `json:"letGo,omitempty"` // steps before it
}

func packedKey(kind string, parts ...string) string {
	return kind + "\x00" + strings.Join(parts, "\x00")
}

// pack writes every value of a picture that is there.
func (p State) pack() (past.State, error) {
	s := past.State{}
	for k, v := range p.listeners {
		if err := packValue(s, packedKey(packedListener, string(k)), v); err != nil {
			return nil, err
		}
	}
	for k, v := range p.hosts {
		if err := packValue(s, packedKey(packedHost, string(k.Listener), k.Host), v); err != nil {
			return nil, err
		}
	}
	for k, v := range p.tls {
		if err := packValue(s, packedKey(packedTLS, string(k.Listener), k.Host), v); err != nil {
			return nil, err
		}
	}
	for k, v := range p.views {
		if err := packValue(s, packedKey(packedView, string(k)), v); err != nil {
			return nil, err
		}
	}
	for k, v := range p.groups {
		if err := packValue(s, packedKey(packedGroup, string(k)), v); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func packValue[V any](s past.State, key string, v *V) error {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("pack %q: %w", key, err)
	}
	s[key] = b
	return nil
}

func newPicture() State {
	return State{newRouting(), map[model.GroupID]*model.BackendGroup{}}
}

// copy takes the values of the keys that are in another picture.
func (p State) copy(from State) {
	maps.Copy(p.listeners, from.listeners)
	maps.Copy(p.hosts, from.hosts)
	maps.Copy(p.tls, from.tls)
	maps.Copy(p.views, from.views)
	maps.Copy(p.groups, from.groups)
}

// one is the part of a picture under one packed key: empty when it has no such key, with
// a nil value when it says that there is none.
func (p State) one(key string) (State, error) {
	out := newPicture()
	kind, rest, _ := strings.Cut(key, "\x00")
	listener, host, _ := strings.Cut(rest, "\x00")
	switch kind {
	case packedListener:
		pick(out.listeners, p.listeners, model.ListenerID(rest))
	case packedHost:
		pick(out.hosts, p.hosts, model.HostKey{Listener: model.ListenerID(listener), Host: host})
	case packedTLS:
		pick(out.tls, p.tls, model.HostKey{Listener: model.ListenerID(listener), Host: host})
	case packedView:
		pick(out.views, p.views, model.ViewID(rest))
	case packedGroup:
		pick(out.groups, p.groups, model.GroupID(rest))
	default:
		return out, fmt.Errorf("it is not known what %q is", key)
	}
	return out, nil
}

func pick[K comparable, V any](to, from map[K]*V, key K) {
	if v, is := from[key]; is {
		to[key] = v
	}
}

// unpack puts a packed value into the picture; nil is none. A field that this program does
// not know is an error: routing that is understood by half is not what was there.
func (p State) unpack(key string, value []byte) error {
	kind, rest, _ := strings.Cut(key, "\x00")
	listener, host, _ := strings.Cut(rest, "\x00")
	switch kind {
	case packedListener:
		return unpackValue(p.listeners, model.ListenerID(rest), value)
	case packedHost:
		return unpackValue(p.hosts, model.HostKey{Listener: model.ListenerID(listener), Host: host}, value)
	case packedTLS:
		return unpackValue(p.tls, model.HostKey{Listener: model.ListenerID(listener), Host: host}, value)
	case packedView:
		return unpackValue(p.views, model.ViewID(rest), value)
	case packedGroup:
		return unpackValue(p.groups, model.GroupID(rest), value)
	default:
		return fmt.Errorf("it is not known what %q is", key)
	}
}

func unpackValue[K comparable, V any](to map[K]*V, key K, value []byte) error {
	if value == nil {
		to[key] = nil
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	v := new(V)
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read %v: %w", key, err)
	}
	to[key] = v
	return nil
}

// edits are what a step did, packed.
func (c *Step) edits() ([]past.Edit, error) {
	before, err := c.before.pack()
	if err != nil {
		return nil, err
	}
	after, err := c.after.pack()
	if err != nil {
		return nil, err
	}
	return past.Between(before, after), nil
}

// note is written beside the edits.
func (c *Step) note() ([]byte, error) {
	return json.Marshal(packedNote{Epoch: c.revision.Epoch, Revision: c.revision.Number, Count: c.count, Owners: c.owners, Mark: c.mark})
}

// packedChange is a step that was read.
func packedChange(record []byte, s past.Step) (*Step, error) {
	var n packedNote
	if err := json.Unmarshal(s.Note, &n); err != nil {
		return nil, fmt.Errorf("read a step's note: %w", err)
	}
	return &Step{
		at: s.At, revision: delta.Revision{Epoch: n.Epoch, Number: n.Revision}, count: n.Count, owners: n.Owners, mark: n.Mark, packed: record,
	}, nil
}

// turnBack is the state before the steps from i on, by what differs of the wanted one, and
// the groups that it may name.
func (h *History) turnBack(i int) (Routing, map[model.GroupID]*model.BackendGroup, error) {
	wanted := State{h.wanted, h.groups}
	target, raw := newPicture(), past.State{}
	for _, c := range slices.Backward(h.log[i:]) {
		packed, before := h.look(c)
		if packed == nil {
			target.copy(before) // the packed ones are older
			continue
		}
		s, err := past.Unpack(packed)
		if err != nil {
			return target.Routing, nil, err
		}
		for _, d := range s.Diffs {
			now, is := raw[d.Key]
			if !is {
				if now, err = packedOf(d.Key, target, wanted); err != nil {
					return target.Routing, nil, err
				}
			}
			if raw[d.Key], err = d.Back(now); err != nil {
				return target.Routing, nil, fmt.Errorf("the step of %s: %w", c.at.UTC().Format(time.RFC3339Nano), err)
			}
		}
	}
	held := State{Routing: h.held}
	for key, value := range raw {
		// The very value that machines have, or are to have, where it is the same.
		same := false
		for _, of := range []State{wanted, held} {
			one, err := of.one(key)
			if err != nil {
				return target.Routing, nil, err
			}
			now, err := packedOf(key, one)
			if err != nil {
				return target.Routing, nil, err
			}
			if same = value != nil && bytes.Equal(now, value); same {
				target.copy(one)
				break
			}
		}
		if !same {
			if err := target.unpack(key, value); err != nil {
				return target.Routing, nil, err
			}
		}
	}
	groups := maps.Clone(h.groups)
	for id, g := range target.groups {
		if g != nil && groups[id] == nil {
			groups[id] = g
		}
	}
	return target.Routing, groups, nil
}

// packedOf is the packed value of a key in the first of the pictures that has the key.
func packedOf(key string, pictures ...State) ([]byte, error) {
	for _, p := range pictures {
		one, err := p.one(key)
		if err != nil {
			return nil, err
		}
		if one.Size()+len(one.groups) > 0 {
			s, err := one.pack()
			return s[key], err
		}
	}
	return nil, nil
}
