package past

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kinds of records.
const (
	kindBase byte = 'B'
	kindStep byte = 'S'
)

// errShort is what is wrong with a record that ends early, or says so.
var errShort = errors.New("it ends early")

// State is values by key. None is nil.
type State map[string][]byte

// Apply puts what became of a key into the state.
func (s State) Apply(key string, value []byte) {
	if value == nil {
		delete(s, key)
	} else {
		s[key] = value
	}
}

// Edit is what became of one value. Nil is none.
type Edit struct {
	Key           string
	Before, After []byte
}

// Between are the edits that lead from one state to another, by key.
func Between(before, after State) []Edit {
	var edits []Edit
	for k, v := range before {
		if now, is := after[k]; !is || !bytes.Equal(v, now) {
			edits = append(edits, Edit{Key: k, Before: v, After: now})
		}
	}
	for k, v := range after {
		if _, was := before[k]; !was {
			edits = append(edits, Edit{Key: k, After: v})
		}
	}
	slices.SortFunc(edits, func(a, b Edit) int { return strings.Compare(a.Key, b.Key) })
	return edits
}

// Step is one change of a state.
type Step struct {
	At    time.Time // in microseconds
	Note  []byte    // the keeper's own
	Diffs []Diff
}

// Diff is what differs of one value.
type Diff struct {
	Key            string
	prefix, suffix int // that both have
	before, after  part
}

type part struct {
	none bool
	sum  uint32 // of the whole value
	body []byte // between prefix and suffix
}

func partOf(v []byte, prefix, suffix int) part {
	if v == nil {
		return part{none: true}
	}
	return part{sum: crc32.ChecksumIEEE(v), body: v[prefix : len(v)-suffix]}
}

// diff finds the one span in which two values differ.
func diff(e Edit) Diff {
	d := Diff{Key: e.Key}
	if e.Before != nil && e.After != nil {
		most := min(len(e.Before), len(e.After))
		for d.prefix < most && e.Before[d.prefix] == e.After[d.prefix] {
			d.prefix++
		}
		for d.suffix < most-d.prefix && e.Before[len(e.Before)-1-d.suffix] == e.After[len(e.After)-1-d.suffix] {
			d.suffix++
		}
	}
	d.before, d.after = partOf(e.Before, d.prefix, d.suffix), partOf(e.After, d.prefix, d.suffix)
	return d
}

// Back is the value before the step, of the value after it.
func (d Diff) Back(after []byte) ([]byte, error) { return d.turn(after, d.after, d.before) }

// Forward is the value after the step, of the value before it.
func (d Diff) Forward(before []byte) ([]byte, error) { return d.turn(before, d.before, d.after) }

func (d Diff) turn(value []byte, from, to part) ([]byte, error) {
	if from.none != (value == nil) || !from.none && from.sum != crc32.ChecksumIEEE(value) {
		return nil, fmt.Errorf("%q is not what the step was made from", d.Key)
	}
	if to.none {
		return nil, nil
	}
	if d.prefix+d.suffix+len(from.body) != len(value) { // all are 0 of a value that was not there
		return nil, fmt.Errorf("%q has %d bytes: %w", d.Key, len(value), errShort)
	}
	out := append([]byte{}, slices.Concat(value[:d.prefix], to.body, value[len(value)-d.suffix:])...) // not nil
	if crc32.ChecksumIEEE(out) != to.sum {
		return nil, fmt.Errorf("%q came out wrong", d.Key)
	}
	return out, nil
}

// Forward applies the step to a state.
func (s Step) Forward(state State) error {
	for _, d := range s.Diffs {
		v, err := d.Forward(state[d.Key])
		if err != nil {
			return err
		}
		state.Apply(d.Key, v)
	}
	return nil
}

// Packer makes records. The zero value is one. It is not safe for concurrent use.
type Packer struct{ compressor *flate.Writer }

// Step makes the record of a step.
func (p *Packer) Step(at time.Time, note []byte, edits []Edit) ([]byte, error) {
	var b []byte
	b = binary.AppendUvarint(b, uint64(len(edits)))
	for _, e := range edits {
		d := diff(e)
		b = putBytes(b, []byte(d.Key))
		b = binary.AppendUvarint(b, uint64(d.prefix))
		b = binary.AppendUvarint(b, uint64(d.suffix))
		for _, v := range []part{d.before, d.after} {
			if v.none {
				b = append(b, 0)
				continue
			}
			b = binary.LittleEndian.AppendUint32(append(b, 1), v.sum)
			b = putBytes(b, v.body)
		}
	}
	return p.pack(kindStep, at, note, b)
}

// Base makes the record of a whole state.
func (p *Packer) Base(at time.Time, note []byte, state State) ([]byte, error) {
	var b []byte
	b = binary.AppendUvarint(b, uint64(len(state)))
	for _, k := range slices.Sorted(maps.Keys(state)) {
		b = putBytes(putBytes(b, []byte(k)), state[k])
	}
	return p.pack(kindBase, at, note, b)
}

// Unpack reads the record of a step.
func Unpack(record []byte) (Step, error) {
	at, note, r, err := unpack(kindStep, record)
	if err != nil {
		return Step{}, fmt.Errorf("read a step: %w", err)
	}
	s := Step{At: at, Note: note}
	for range r.number() {
		d := Diff{Key: string(r.bytes()), prefix: int(r.number()), suffix: int(r.number())}
		for _, p := range []*part{&d.before, &d.after} {
			if p.none = r.byte() == 0; !p.none {
				p.sum, p.body = r.sum(), r.bytes()
			}
		}
		if r.err != nil {
			break
		}
		s.Diffs = append(s.Diffs, d)
	}
	if r.err != nil {
		return Step{}, fmt.Errorf("read a step: %w", r.err)
	}
	return s, nil
}

// UnpackBase reads the record of a whole state.
func UnpackBase(record []byte) (at time.Time, note []byte, state State, err error) {
	at, note, r, err := unpack(kindBase, record)
	if err != nil {
		return at, nil, nil, fmt.Errorf("read a state: %w", err)
	}
	state = State{}
	for range r.number() {
		k, v := string(r.bytes()), r.bytes()
		if r.err != nil {
			return at, nil, nil, fmt.Errorf("read a state: %w", r.err)
		}
		state[k] = v
	}
	return at, note, state, r.err
}

// pack is the kind, the time in microseconds, the note, and the body, compressed.
func (p *Packer) pack(kind byte, at time.Time, note, body []byte) ([]byte, error) {
	b := binary.AppendVarint([]byte{kind}, at.UnixMicro())
	b = putBytes(b, note)
	out := bytes.NewBuffer(b)
	if p.compressor == nil {
		w, err := flate.NewWriter(out, flate.BestSpeed)
		if err != nil {
			return nil, err
		}
		p.compressor = w
	}
	p.compressor.Reset(out)
	if _, err := p.compressor.Write(body); err != nil {
		return nil, err
	}
	if err := p.compressor.Close(); err != nil {
		return nil, err
	}
	return slices.Clip(out.Bytes()), nil
}

func unpack(kind byte, record []byte) (time.Time, []byte, *reader, error) {
	if len(record) == 0 || record[0] != kind {
		return time.Time{}, nil, nil, errors.New("it is of another kind")
	}
	micros, n := binary.Varint(record[1:])
	if n <= 0 {
		return time.Time{}, nil, nil, errShort
	}
	head := &reader{left: record[1+n:]}
	note := head.bytes()
	if head.err != nil {
		return time.Time{}, nil, nil, head.err
	}
	body, err := io.ReadAll(flate.NewReader(bytes.NewReader(head.left)))
	return time.UnixMicro(micros), note, &reader{left: body}, err
}

func putBytes(to, b []byte) []byte { return append(binary.AppendUvarint(to, uint64(len(b))), b...) }

// reader takes a body apart. After an error everything is empty.
type reader struct {
	left []byte
	err  error
}

func (r *reader) fail() { r.left, r.err = nil, errShort }

// number is one that a length may be.
func (r *reader) number() uint32 {
	v, n := binary.Uvarint(r.left)
	if n <= 0 || v > 1<<31-1 {
		r.fail()
		return 0
	}
	r.left = r.left[n:]
	return uint32(v)
}

// bytes are never nil.
func (r *reader) bytes() []byte {
	n := int(r.number())
	if n > len(r.left) {
		r.fail()
		return []byte{}
	}
	b := r.left[:n:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) byte() byte {
	if len(r.left) == 0 {
		r.fail()
		return 0
	}
	b := r.left[0]
	r.left = r.left[1:]
	return b
}

func (r *reader) sum() uint32 {
	if len(r.left) < 4 {
		r.fail()
		return 0
	}
	v := binary.LittleEndian.Uint32(r.left)
	r.left = r.left[4:]
	return v
}
