package past

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

func same(a, b State) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// Whatever steps a state takes, a base leads forward to each of its states, and the
// newest leads back.
func TestStepsLeadForwardAndBack(t *testing.T) {
	for seed := range uint64(200) {
		var p Packer
		random := rand.New(rand.NewPCG(seed, 1))
		value := func() []byte {
			b := make([]byte, random.IntN(30))
			for i := range b {
				b[i] = "ab"[random.IntN(2)]
			}
			return b
		}
		states := []State{{}}
		var records [][]byte
		for i := range 20 {
			next := maps.Clone(states[i])
			for range random.IntN(4) {
				k := fmt.Sprint("key ", random.IntN(5))
				if random.IntN(4) == 0 {
					delete(next, k)
				} else {
					next[k] = value()
				}
			}
			r, err := p.Step(time.UnixMicro(int64(i)), []byte{byte(i)}, Between(states[i], next))
			if err != nil {
				t.Fatal(err)
			}
			states, records = append(states, next), append(records, r)
		}
		from := random.IntN(len(records))
		record, err := p.Base(time.UnixMicro(7), []byte("note"), states[from])
		if err != nil || !isBase(record) || isBase(records[0]) {
			t.Fatal("it is not known as a base", err)
		}
		at, note, state, err := UnpackBase(record)
		if err != nil || at.UnixMicro() != 7 || string(note) != "note" || !same(state, states[from]) {
			t.Fatalf("seed %d: base %v %q %v %v", seed, at, note, state, err)
		}
		back := maps.Clone(states[len(records)])
		for i := len(records) - 1; i >= from; i-- {
			s, err := Unpack(records[i])
			if err != nil || s.At.UnixMicro() != int64(i) || !bytes.Equal(s.Note, []byte{byte(i)}) {
				t.Fatalf("seed %d: step %+v, %v", seed, s, err)
			}
			for _, d := range s.Diffs {
				v, err := d.Back(back[d.Key])
				if err != nil {
					t.Fatal(err)
				}
				back.Apply(d.Key, v)
			}
			if !same(back, states[i]) {
				t.Fatalf("seed %d: back to %d: %q, want %q", seed, i, back, states[i])
			}
		}
		for i := from; i < len(records); i++ {
			s, err := Unpack(records[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Forward(state); err != nil || !same(state, states[i+1]) {
				t.Fatalf("seed %d: forward to %d: %q, want %q; %v", seed, i+1, state, states[i+1], err)
			}
		}
	}
}

// A large value of which little changes takes little.
func TestAStepIsAsLargeAsWhatChanged(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(random.Uint32())
	}
	changed := bytes.Clone(large)
	changed[1<<19] ^= 1
	r, err := new(Packer).Step(time.Unix(0, 0), nil, []Edit{{Key: "k", Before: large, After: changed}})
	if err != nil || len(r) > 64 {
		t.Errorf("it takes %d bytes, %v", len(r), err)
	}
}

func TestAStepOfAnotherValueIsRefused(t *testing.T) {
	r, err := new(Packer).Step(time.Unix(0, 0), nil, []Edit{{Key: "k", Before: []byte("one"), After: []byte("two")}, {Key: "new", After: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Unpack(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range [][]byte{nil, {}, []byte("twos"), []byte("one")} {
		if v, err := s.Diffs[0].Back(value); err == nil {
			t.Errorf("of %q comes %q", value, v)
		}
	}
	if _, err := s.Diffs[1].Forward([]byte("x")); err == nil {
		t.Error("a value comes where one is")
	}
}

// FuzzUnpack: any record is read or refused.
func FuzzUnpack(f *testing.F) {
	step, err := new(Packer).Step(time.Unix(1, 0), []byte("note"), []Edit{{Key: "k", Before: []byte("one"), After: []byte("two")}, {Key: "new", After: []byte("x")}})
	if err != nil {
		f.Fatal(err)
	}
	base, err := new(Packer).Base(time.Unix(1, 0), nil, State{"k": []byte("one")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(step)
	f.Add(base)
	f.Fuzz(func(_ *testing.T, record []byte) {
		if s, err := Unpack(record); err == nil {
			for _, d := range s.Diffs {
				_, _ = d.Back([]byte("two"))
				_, _ = d.Forward(nil)
			}
		}
		_, _, _, _ = UnpackBase(record)
	})
}

// isBase says whether a record is that of a whole state.
func isBase(record []byte) bool { return len(record) > 0 && record[0] == kindBase }
