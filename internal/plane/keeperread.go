package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/past"
	"fairlead.dev/internal/record"
)

// forward brings a state from before a change to after it.
func forward(state past.State, c *change) error {
	s, err := past.Unpack(c.packed)
	if err != nil {
		return err
	}
	return s.Forward(state)
}

// found is a history as a vault had it.
type found struct {
	kept
	state past.State // after the last step
}

// read takes a history from the vault; it is nil when there is none that can be used.
func (k *keeper) read(ctx context.Context) (*found, string, error) {
	var records [][]byte
	err := k.within(ctx, func(ctx context.Context) (err error) {
		records, err = k.vault.load(ctx)
		return err
	})
	damaged := ""
	if err != nil {
		if !errors.Is(err, record.ErrDamaged) {
			return nil, "", fmt.Errorf("read the revisions of planes before this one: %w", err)
		}
		damaged = err.Error()
	}
	if len(records) == 0 {
		if damaged != "" {
			k.log.Warn("the revisions of planes before this one are lost", "error", damaged)
			damaged = "those of planes before this one are lost: " + damaged
		}
		return nil, damaged, nil
	}
	f, err := foundIn(records)
	if err != nil {
		k.log.Warn("the revisions of planes before this one cannot be used", "error", err)
		return nil, "those of planes before this one cannot be used: " + err.Error(), nil
	}
	if damaged != "" {
		k.log.Warn("the revisions of planes before this one are there in part", "error", damaged, "until", f.last())
	}
	return f, "", nil
}

// foundIn checks records, every value of them: whoever turns back must not find later
// that it cannot.
func foundIn(records [][]byte) (*found, error) {
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
	f := &found{kept: kept{base: records[0], at: at, letGo: b.LetGo, size: len(records[0])}, state: state}
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
		f.add(c)
	}
	return f, nil
}

// last is when the last of it was.
func (f *found) last() time.Time {
	if n := len(f.steps); n > 0 {
		return f.steps[n-1].at
	}
	return f.at
}

// join puts what the vault has before what this plane has seen itself, where it reaches
// further back. What changed in between is one step.
func (k *keeper) join(ctx context.Context, epoch uint64) error {
	f, lacks, err := k.read(ctx)
	if err != nil {
		return err
	}
	k.steady.Lock()
	defer k.steady.Unlock()
	k.mu.Lock()
	own, first := k.kept, k.first
	own.steps = slices.Clone(own.steps)
	k.mu.Unlock()
	if f == nil || !f.at.Before(own.at) {
		k.mu.Lock()
		k.kept.rewrite = true
		k.mu.Unlock()
		if lacks == "" {
			return nil
		}
		return k.adopt(ctx, adoption{began: own.at, lacks: lacks})
	}
	// The plane's own steps go on from where the others end. Clocks differ: when its own
	// are all before that, they are one step too.
	_, _, state, err := past.UnpackBase(own.base)
	if err != nil {
		return err
	}
	a := adoption{steps: f.steps, began: f.at, letGo: f.letGo, replaces: own.upTo}
	at, n := own.at, 0
	for ; n < len(own.steps) && !own.steps[n].at.After(f.last()); n++ {
		if err := forward(state, own.steps[n]); err != nil {
			return err
		}
		a.replaces, first = own.steps[n].sequence, own.steps[n]
	}
	if !at.After(f.last()) {
		at = f.last().Add(time.Microsecond)
	}
	if edits := past.Between(f.state, state); len(edits) > 0 {
		between, err := stepBetween(at, first.revision, epoch, edits)
		if err != nil {
			return err
		}
		a.steps = append(a.steps, between)
	}
	if err := k.adopt(ctx, a); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	joined := kept{base: f.base, at: f.at, letGo: f.letGo, size: len(f.base), nth: k.kept.nth, upTo: a.replaces, rewrite: true}
	for _, c := range slices.Concat(a.steps, k.kept.steps[n:]) {
		joined.add(c)
	}
	k.kept = joined
	return nil
}

// stepBetween is a step made of what differs.
func stepBetween(at time.Time, rev delta.Revision, epoch uint64, edits []past.Edit) (*change, error) {
	if rev.Epoch == 0 {
		rev.Epoch = epoch
	}
	before, after := newPicture(), newPicture()
	for _, e := range edits {
		if err := errors.Join(before.unpack(e.Key, e.Before), after.unpack(e.Key, e.After)); err != nil {
			return nil, err
		}
	}
	c := &change{
		at: at, revision: rev, count: after.size(), before: before, after: after, owners: ownersOf(before.routing, after.routing),
	}
	note, err := c.note()
	if err != nil {
		return nil, err
	}
	c.packed, err = new(past.Packer).Step(at, note, edits)
	c.before, c.after = picture{}, picture{}
	return c, err
}
