package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/past"
)

// ErrMoved says that the history, or what is written of it, is another than was read
// or written last: begin again from what is there.
var ErrMoved = errors.New("the history has moved on")

// Log is a history that can be written down: a state, and the steps from it on, packed.
type Log struct {
	base    []byte         // its record
	first   delta.Revision // of the state that the plane began with
	At      time.Time
	letGo   int
	Steps   []*Step // packed
	Folded  uint64  // how many steps ever came before the first of these
	upTo    uint64  // sequence of the last own step that base has in it
	Size    int     // of all records, bytes
	Rewrite bool    // what is written does not begin with it
}

// Add adds a step that is packed.
func (k *Log) Add(c *Step) {
	k.Steps = append(k.Steps, c)
	k.Size += len(c.packed)
}

// NewLog is a history without steps: the state that a plane begins with.
func NewLog(p *past.Packer, at time.Time, rev delta.Revision, state State) (Log, error) {
	values, err := state.pack()
	if err != nil {
		return Log{}, err
	}
	note, err := json.Marshal(packedBase{})
	if err != nil {
		return Log{}, err
	}
	base, err := p.Base(at, note, values)
	return Log{base: base, At: at, first: rev, Size: len(base), Rewrite: true}, err
}

// Clone is a copy that steps may be added to.
func (k Log) Clone() Log {
	k.Steps = slices.Clone(k.Steps)
	return k
}

// Count is how many steps there were ever.
func (k Log) Count() uint64 { return k.Folded + uint64(len(k.Steps)) }

// Records are the state and the steps.
func (k Log) Records() [][]byte {
	records := [][]byte{k.base}
	for _, c := range k.Steps {
		records = append(records, c.packed)
	}
	return records
}

// Since are the records of the steps after the first n ever.
func (k Log) Since(n uint64) [][]byte {
	var records [][]byte
	for _, c := range k.Steps[n-k.Folded:] {
		records = append(records, c.packed)
	}
	return records
}

// Exceeds says that the steps are more, or larger, than an eighth above what may be kept.
func (k Log) Exceeds(most int) bool { return len(k.Steps) > Limit*9/8 || k.Size > most/8*9 }

// Fold merges the oldest steps into the state when there is more than may be kept, most bytes. It
// returns how many; 0: nothing has changed.
func (k Log) Fold(most int) (Log, int, error) {
	if len(k.Steps) <= Limit && k.Size <= most || len(k.Steps) == 0 {
		return k, 0, nil
	}
	at, _, state, err := past.UnpackBase(k.base)
	if err != nil {
		return k, 0, err
	}
	out, n := k, 0
	for ; n < len(k.Steps) && (len(k.Steps)-n > Limit*7/8 || out.Size > most*7/8); n++ {
		c := k.Steps[n]
		if err := forward(state, c); err != nil {
			return k, 0, err
		}
		at, out.Size = c.at, out.Size-len(c.packed)
		out.upTo = max(out.upTo, c.sequence)
		if c.count > 0 {
			out.letGo++
		}
	}
	note, err := json.Marshal(packedBase{LetGo: out.letGo})
	if err != nil {
		return k, 0, err
	}
	if out.base, err = new(past.Packer).Base(at, note, state); err != nil {
		return k, 0, err
	}
	out.Size += len(out.base) - len(k.base)
	out.At, out.Steps, out.Folded, out.Rewrite = at, slices.Clone(k.Steps[n:]), k.Folded+uint64(n), true
	return out, n, nil
}

// Adoption is what a vault had from before this plane.
type Adoption struct {
	Steps []*Step
	Began time.Time
	letGo int
	Lacks string
	// replaces is the sequence of the last of the plane's own steps that these replace.
	replaces uint64
}

// Pack packs a step. The caller sets the result (replace).
func (c *Step) Pack(p *past.Packer) ([]byte, error) {
	edits, err := c.edits()
	if err != nil {
		return nil, err
	}
	note, err := c.note()
	if err != nil {
		return nil, err
	}
	return p.Step(c.at, note, edits)
}

// Content is a step packed, or else what it replaced.
func (c *Step) Content() (packed []byte, before State) { return c.packed, c.before }

// Keep notes that a step outlives the plane.
func (c *Step) Keep() { c.kept = true }

// IsKept says whether a step outlives the plane.
func (c *Step) IsKept() bool { return c.kept }

// SetPacked replaces the two states of a step by their packed form.
func (c *Step) SetPacked(packed []byte) {
	c.packed, c.before, c.after = packed, State{}, State{}
}

// forward brings a state from before a change to after it.
func forward(state past.State, c *Step) error {
	s, err := past.Unpack(c.packed)
	if err != nil {
		return err
	}
	return s.Forward(state)
}

// Stored is a history as a vault had it.
type Stored struct {
	Log
	state past.State // after the last step
}

// ReadLog reads records and checks every value: a rollback must not fail later.
func ReadLog(records [][]byte) (*Stored, error) {
	at, note, state, err := past.UnpackBase(records[0])
	if err != nil {
		return nil, err
	}
	var b packedBase
	if err := json.Unmarshal(note, &b); err != nil {
		return nil, fmt.Errorf("read what is known of a state: %w", err)
	}
	known := newPicture()
	for key, value := range state {
		if err := known.unpack(key, value); err != nil {
			return nil, err
		}
	}
	f := &Stored{Log: Log{base: records[0], At: at, letGo: b.LetGo, Size: len(records[0])}, state: state}
	for _, r := range records[1:] {
		s, err := past.Unpack(r)
		if err != nil {
			return nil, err
		}
		if err := s.Forward(state); err != nil {
			return nil, err
		}
		for _, d := range s.Diffs {
			if err := known.unpack(d.Key, state[d.Key]); err != nil {
				return nil, err
			}
		}
		c, err := packedChange(r, s)
		if err != nil {
			return nil, err
		}
		f.Add(c)
	}
	return f, nil
}

// Last is when the last of it was.
func (f *Stored) Last() time.Time {
	if n := len(f.Steps); n > 0 {
		return f.Steps[n-1].at
	}
	return f.At
}

// Before is what a history that was read gives one that began later: its steps, and what changed
// between its end and the other's beginning as one step. n is how many of the other's steps it replaces: clocks differ, and all steps that are not
// after its end are in that one step, too.
func (f *Stored) Before(own Log, epoch uint64) (a Adoption, n int, err error) {
	_, _, state, err := past.UnpackBase(own.base)
	if err != nil {
		return a, 0, err
	}
	a = Adoption{Steps: f.Steps, Began: f.At, letGo: f.letGo, replaces: own.upTo}
	at, rev := own.At, own.first
	for ; n < len(own.Steps) && !own.Steps[n].at.After(f.Last()); n++ {
		if err := forward(state, own.Steps[n]); err != nil {
			return a, 0, err
		}
		a.replaces, rev = own.Steps[n].sequence, own.Steps[n].revision
	}
	if !at.After(f.Last()) {
		at = f.Last().Add(time.Microsecond)
	}
	if edits := past.Between(f.state, state); len(edits) > 0 {
		between, err := stepBetween(at, rev, epoch, edits)
		if err != nil {
			return a, 0, err
		}
		a.Steps = append(a.Steps, between)
	}
	return a, n, nil
}

// Joined is a history with what was adopted before it, in the stead of its first n steps.
func (f *Stored) Joined(a Adoption, own Log, n int) Log {
	out := Log{base: f.base, At: f.At, first: own.first, letGo: f.letGo, Size: len(f.base), Folded: own.Folded, upTo: a.replaces, Rewrite: true}
	for _, c := range slices.Concat(a.Steps, own.Steps[n:]) {
		out.Add(c)
	}
	return out
}

// stepBetween is a step made of what differs.
func stepBetween(at time.Time, rev delta.Revision, epoch uint64, edits []past.Edit) (*Step, error) {
	if rev.Epoch == 0 {
		rev.Epoch = epoch
	}
	before, after := newPicture(), newPicture()
	for _, e := range edits {
		if err := errors.Join(before.unpack(e.Key, e.Before), after.unpack(e.Key, e.After)); err != nil {
			return nil, err
		}
	}
	c := &Step{
		at: at, revision: rev, count: after.Size(), before: before, after: after, owners: ownersOf(before.Routing, after.Routing),
	}
	note, err := c.note()
	if err != nil {
		return nil, err
	}
	packed, err := new(past.Packer).Step(at, note, edits)
	c.SetPacked(packed)
	return c, err
}
