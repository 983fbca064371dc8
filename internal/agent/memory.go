package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
)

// The file is a header and records. A record is one batch, written whole: a length
// and a CRC-32C, both 32 bits little-endian, then that many bytes: a sequence of
// length-prefixed DeltaDiscoveryResponse messages, whose nonce says what part of the
// state they change. The first record is the whole state at the time when the file
// was made; so every readable beginning of the file is a state that once was.
const memoryHeader = "fairlead agent state 1\n"

const (
	partTarget = "target"
	partGood   = "good" // an empty body stands for the target's of that version

	maxRecord = 1 << 30
	// compactFactor: the file is made anew when it has grown to so many times what
	// its first record took, and compactFloor bytes.
	compactFactor = 3
	compactFloor  = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged says that a state file could not be read to its end.
var errDamaged = errors.New("damaged state file")

// remembered is what a memory held.
type remembered struct {
	revision     delta.Revision
	target, good []delta.Change
}

// memory is a state on disk. It is not safe for concurrent use.
type memory struct {
	path     string
	file     *os.File
	size     int64 // of what is known to be in the file
	first    int64 // size after the first record
	revision delta.Revision
	target   map[key]*delta.Resource
	good     map[key]*delta.Resource
	broken   bool // the file is not what it should be: make it anew
}

// openMemory reads the state at path. An errDamaged comes with what could be read,
// which is an older state, or nothing. A file that is not there is an empty state.
func openMemory(path string) (*memory, remembered, error) {
	m := &memory{path: path, target: map[key]*delta.Resource{}, good: map[key]*delta.Resource{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		m.broken = true // nothing to append to
		return m, remembered{}, nil
	}
	if err != nil {
		m.broken = true
		return m, remembered{}, fmt.Errorf("open remembered state: %w", err)
	}
	defer f.Close()
	if err = m.read(f); err != nil {
		m.broken = true
		err = fmt.Errorf("%w %s: %w", errDamaged, path, err)
	}
	return m, m.remembered(), err
}

// read takes records until the end or the first that is not whole.
func (m *memory) read(f *os.File) error {
	r := bufio.NewReaderSize(f, 1<<20)
	header := make([]byte, len(memoryHeader))
	if _, err := io.ReadFull(r, header); err != nil || string(header) != memoryHeader {
		return fmt.Errorf("it does not begin with %q", memoryHeader[:len(memoryHeader)-1])
	}
	m.size = int64(len(header))
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("half a record at byte %d", m.size)
		}
		length := binary.LittleEndian.Uint32(head[:4])
		if length > maxRecord {
			return fmt.Errorf("a record of %d bytes at byte %d", length, m.size)
		}
		var body bytes.Buffer
		if n, err := io.CopyN(&body, r, int64(length)); err != nil {
			return fmt.Errorf("a record of %d bytes at byte %d has only %d", length, m.size, n)
		}
		if crc32.Checksum(body.Bytes(), castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return fmt.Errorf("wrong checksum of the record at byte %d", m.size)
		}
		batches, err := decode(body.Bytes())
		if err != nil {
			return fmt.Errorf("record at byte %d: %w", m.size, err)
		}
		for _, b := range batches {
			m.apply(b)
		}
		if m.size += 8 + int64(length); m.first == 0 {
			m.first = m.size
		}
	}
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
	var record []byte
	for _, b := range batches {
		var err error
		if record, err = m.encode(record, b); err != nil {
			return err
		}
	}
	if len(record) == 0 && (!m.broken || len(m.target)+len(m.good) == 0) {
		return nil
	}
	if m.broken || m.size > compactFloor && m.size > compactFactor*m.first {
		return m.compact()
	}
	if err := m.append(record); err != nil {
		m.broken = true
		return fmt.Errorf("remember state: %w", err)
	}
	return nil
}

// ensure makes the file if there is none: that it is there says that nothing is missing.
func (m *memory) ensure() error {
	if !m.broken {
		return nil
	}
	return m.compact()
}

func (m *memory) append(record []byte) error {
	if m.file == nil {
		f, err := os.OpenFile(m.path, os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		m.file = f
	}
	framed := frame(record)
	if _, err := m.file.WriteAt(framed, m.size); err != nil {
		return err
	}
	if err := m.file.Sync(); err != nil {
		return err
	}
	m.size += int64(len(framed))
	return nil
}

func frame(record []byte) []byte {
	framed := make([]byte, 8, 8+len(record))
	binary.LittleEndian.PutUint32(framed, uint32(len(record)))
	binary.LittleEndian.PutUint32(framed[4:], crc32.Checksum(record, castagnoli))
	return append(framed, record...)
}

// compact makes the file anew with the whole state as its first record.
func (m *memory) compact() error {
	record, err := m.encode(nil, memoryBatch(m.remembered()))
	if err != nil {
		return err
	}
	if m.file != nil {
		m.file.Close()
		m.file = nil
	}
	data := append([]byte(memoryHeader), frame(record)...)
	if err := writeFile(m.path, data); err != nil {
		m.broken = true
		return fmt.Errorf("remember state: %w", err)
	}
	m.size, m.first, m.broken = int64(len(data)), int64(len(data)), false
	return nil
}

func (m *memory) close() {
	if m.file != nil {
		m.file.Close()
		m.file = nil
	}
}

// writeFile replaces a file atomically: after a crash it is the old or the new one,
// whole. Only our user can read it.
func writeFile(path string, data []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // it may be what filled the disk
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// encode appends a batch to a record and applies it.
func (m *memory) encode(record []byte, b memoryBatch) ([]byte, error) {
	if len(b.target) == 0 && len(b.good) == 0 { // the revision alone
		b.target = []delta.Change{{Type: typeCheckpoint, Name: "none"}}
	}
	record, err := m.put(record, partTarget, b.revision, b.target)
	if err != nil {
		return nil, err
	}
	m.apply(memoryBatch{revision: b.revision, target: b.target})
	if record, err = m.put(record, partGood, b.revision, b.good); err != nil {
		return nil, err
	}
	m.apply(memoryBatch{revision: b.revision, good: b.good})
	return record, nil
}

// put appends changes of one part, a message for each type.
func (m *memory) put(record []byte, part string, revision delta.Revision, changes []delta.Change) ([]byte, error) {
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
		record = binary.AppendUvarint(record, uint64(len(encoded)))
		record = append(record, encoded...)
	}
	return record, nil
}

// decode reads what encode wrote, in its order.
func decode(record []byte) ([]memoryBatch, error) {
	var batches []memoryBatch
	for len(record) > 0 {
		length, n := binary.Uvarint(record)
		if n <= 0 || length > uint64(len(record)-n) {
			return nil, errors.New("it is not a sequence of messages")
		}
		var resp discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(record[n:n+int(length)], &resp); err != nil {
			return nil, err
		}
		record = record[n+int(length):]
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
