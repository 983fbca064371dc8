package agent

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/record"
)

// The file is a header and records. A record is one batch: a sequence of
// length-prefixed DeltaDiscoveryResponse messages, whose nonce says what part of the
// state they change. The first record is the whole state at the time when the file
// was made; so every readable beginning of the file is a state that once was.
const memoryHeader = "fairlead agent state 1\n"

// stateFile is the memory's name in the data directory.
const stateFile = "state"

const (
	partTarget = "target"
	partGood   = "good" // an empty body stands for the target's of that version

	// compactFactor: the file is made anew when it has grown to so many times what
	// its first record took, and compactFloor bytes.
	compactFactor = 3
	compactFloor  = 1 << 20
)

// remembered is what a memory held.
type remembered struct {
	revision     delta.Revision
	target, good []delta.Change
}

// memory is a state on disk. It is not safe for concurrent use.
type memory struct {
	file     *record.File
	revision delta.Revision
	target   map[key]*delta.Resource
	good     map[key]*delta.Resource
	anew     bool // the next write makes the file anew
}

// openMemory reads the state at path. A record.ErrDamaged comes with what could be read,
// which is an older state, or nothing. A file that is not there is an empty state.
func openMemory(path string) (*memory, remembered, error) {
	m := &memory{target: map[key]*delta.Resource{}, good: map[key]*delta.Resource{}}
	file, err := record.Open(path, memoryHeader, func(body []byte) error {
		batches, err := decode(body)
		for _, b := range batches {
			m.apply(b)
		}
		return err
	})
	m.file = file
	if err != nil {
		err = fmt.Errorf("read the stored state: %w", err)
	}
	return m, m.remembered(), err
}

// Remembers reports whether that data directory has a stored state, with which the next
// agent continues. It does not read the state.
func Remembers(dataDir string) bool {
	info, err := os.Stat(filepath.Join(dataDir, stateFile))
	return err == nil && info.Size() > 0
}

// apply brings the state in memory up to date.
func (m *memory) apply(b memoryBatch) {
	if b.revision.Compare(m.revision) > 0 {
		m.revision = b.revision
	}
	for _, c := range b.target {
		set(m.target, c)
	}
	for _, c := range b.good {
		if r := m.target[key{c.Type, c.Name}]; c.Resource != nil && c.Resource.Body == nil {
			if r == nil || r.Version != c.Resource.Version {
				continue // it was the target's, but that has moved on
			}
			c.Resource = r
		}
		set(m.good, c)
	}
}

func set(to map[key]*delta.Resource, c delta.Change) {
	if k := (key{c.Type, c.Name}); c.Resource == nil {
		delete(to, k)
	} else {
		to[k] = c.Resource
	}
}

func (m *memory) remembered() remembered {
	return remembered{m.revision, changesOf(m.target), changesOf(m.good)}
}

func changesOf(from map[key]*delta.Resource) []delta.Change {
	keys := slices.SortedFunc(maps.Keys(from), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	changes := make([]delta.Change, len(keys))
	for i, k := range keys {
		changes[i] = delta.Change{Type: k.kind, Name: k.name, Resource: from[k]}
	}
	return changes
}

// write appends batches as one record and waits until it is on the disk. After an
// error the next write makes the file anew, from everything that it was given so
// far; the old file is there until the new one is whole.
func (m *memory) write(batches []memoryBatch) error {
	var body []byte
	for _, b := range batches {
		var err error
		if body, err = m.encode(body, b); err != nil {
			return err
		}
	}
	if len(body) == 0 && !m.anew && (!m.file.Broken() || len(m.target)+len(m.good) == 0) {
		return nil
	}
	if m.anew || m.file.Broken() || m.file.Size() > compactFloor && m.file.Size() > compactFactor*m.file.First() {
		return m.compact()
	}
	if err := m.file.Append(body); err != nil {
		return fmt.Errorf("store state: %w", err)
	}
	return nil
}

// ensure makes the file if there is none: that it is there says that nothing is missing.
func (m *memory) ensure() error {
	if !m.file.Broken() {
		return nil
	}
	return m.compact()
}

// compact makes the file anew with the whole state as its first record.
func (m *memory) compact() error {
	body, err := m.encode(nil, memoryBatch(m.remembered()))
	if err != nil {
		return err
	}
	if err := m.file.Replace(body); err != nil {
		return fmt.Errorf("store state: %w", err)
	}
	m.anew = false
	return nil
}

func (m *memory) close() { m.file.Close() }

// encode appends a batch to a record's body and applies it.
func (m *memory) encode(body []byte, b memoryBatch) ([]byte, error) {
	if len(b.target) == 0 && len(b.good) == 0 { // the revision alone
		b.target = []delta.Change{{Type: typeCheckpoint, Name: "none"}}
	}
	body, err := m.put(body, partTarget, b.revision, b.target)
	if err != nil {
		return nil, err
	}
	m.apply(memoryBatch{revision: b.revision, target: b.target})
	if body, err = m.put(body, partGood, b.revision, b.good); err != nil {
		return nil, err
	}
	m.apply(memoryBatch{revision: b.revision, good: b.good})
	return body, nil
}

// put appends changes of one part, a message for each type.
func (m *memory) put(body []byte, part string, revision delta.Revision, changes []delta.Change) ([]byte, error) {
	byType := map[delta.Type]*discoveryv3.DeltaDiscoveryResponse{}
	var order []*discoveryv3.DeltaDiscoveryResponse
	for _, c := range changes {
		resp := byType[c.Type]
		if resp == nil {
			resp = &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(c.Type), Nonce: part, SystemVersionInfo: revision.String()}
			byType[c.Type] = resp
			order = append(order, resp)
		}
		if c.Resource == nil {
			resp.RemovedResources = append(resp.RemovedResources, c.Name)
			continue
		}
		r := &discoveryv3.Resource{Name: c.Name, Version: c.Resource.Version, Resource: c.Resource.Body}
		if part == partGood {
			if t := m.target[key{c.Type, c.Name}]; t != nil && t.Version == r.Version {
				r.Resource = nil
			}
		}
		resp.Resources = append(resp.Resources, r)
	}
	for _, resp := range order {
		encoded, err := proto.Marshal(resp)
		if err != nil {
			return nil, fmt.Errorf("encode state: %w", err)
		}
		body = binary.AppendUvarint(body, uint64(len(encoded)))
		body = append(body, encoded...)
	}
	return body, nil
}

// decode reads what encode wrote, in its order.
func decode(body []byte) ([]memoryBatch, error) {
	var batches []memoryBatch
	for len(body) > 0 {
		length, n := binary.Uvarint(body)
		if n <= 0 || length > uint64(len(body)-n) {
			return nil, errors.New("it is not a sequence of messages")
		}
		var resp discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(body[n:n+int(length)], &resp); err != nil {
			return nil, err
		}
		body = body[n+int(length):]
		revision, err := delta.ParseRevision(resp.GetSystemVersionInfo())
		if err != nil {
			return nil, err
		}
		t := delta.Type(resp.GetTypeUrl())
		var changes []delta.Change
		for _, r := range resp.GetResources() {
			changes = append(changes, delta.Change{Type: t, Name: r.GetName(), Resource: &delta.Resource{
				Name: r.GetName(), Version: r.GetVersion(), Body: r.GetResource(),
			}})
		}
		for _, name := range resp.GetRemovedResources() {
			changes = append(changes, delta.Change{Type: t, Name: name})
		}
		switch resp.GetNonce() {
		case partTarget:
			batches = append(batches, memoryBatch{revision: revision, target: changes})
		case partGood:
			batches = append(batches, memoryBatch{revision: revision, good: changes})
		default:
			return nil, fmt.Errorf("part %q is not known", resp.GetNonce())
		}
	}
	return batches, nil
}
