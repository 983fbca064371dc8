package changes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

// Bounds of a Log.
const (
	MaxEntries = 1000
	MaxBytes   = 4 << 20
	// maxTimed is of how many entries it is noted when machines have them, and maxMachines of how many machines.
	maxTimed    = 200
	maxMachines = 200
)

// Entry is a change as a Log keeps it.
type Entry struct {
	model.Change
	// Version is the object's resourceVersion: by it two planes know the same change.
	Version string `json:"version"`

	ready bool // the diff is there
	size  int  // bytes
	saved bool // as it is
}

// Log are the last changes. It is not safe for concurrent use.
type Log struct {
	bound   int // bytes
	entries []Entry
	bytes   int
	last    uint64 // number
}

// New returns a Log without entries that holds about so many bytes at most.
func New(bound int) *Log { return &Log{bound: bound} }

// Add adds a change, and returns its number. It is listed once Describe has said how the object differs.
func (l *Log) Add(e Entry) uint64 {
	l.last++
	e.Number, e.ready, e.saved = l.last, false, false
	e.size = sizeOf(e)
	l.entries = append(l.entries, e)
	l.bytes += e.size
	l.trim()
	return e.Number
}

// Describe says how the object of a change differs. An object that is there before and after and does not differ is no change.
func (l *Log) Describe(number uint64, fields []model.FieldChange, more int) {
	i := l.find(number)
	if i < 0 {
		return
	}
	e := &l.entries[i]
	if e.Verb == model.ChangeChanged && len(fields) == 0 {
		l.bytes -= e.size
		l.entries = slices.Delete(l.entries, i, i+1)
		return
	}
	e.Diff, e.More, e.ready = fields, more, true
	l.resize(e)
	l.trim()
}

// Reached notes that a machine runs these revisions since at.
func (l *Log) Reached(machine string, revisions []delta.Revision, at time.Time) (news bool) {
	for i := max(0, len(l.entries)-maxTimed); i < len(l.entries); i++ {
		e := &l.entries[i]
		if e.Revision == 0 || len(e.Machines) == maxMachines || !slices.Contains(revisions, delta.Revision{Epoch: e.Epoch, Number: e.Revision}) ||
			slices.ContainsFunc(e.Machines, func(m model.MachineTime) bool { return m.Machine == machine }) {
			continue
		}
		e.Machines = append(slices.Clip(e.Machines), model.MachineTime{Machine: machine, At: at})
		e.saved = false
		l.resize(e)
		news = true
	}
	l.trim()
	return news
}

// Lead gives the changes that nobody was sent yet, because the plane did not lead, the first revision of its epoch: that one tells
// machines everything.
func (l *Log) Lead(first delta.Revision) {
	for i := range l.entries {
		if e := &l.entries[i]; e.Epoch == 0 {
			e.Epoch, e.Revision, e.saved = first.Epoch, first.Number, false
		}
	}
}

// Prepend puts the changes that a plane before this one has kept before its own. A change that both have seen is
// that plane's. The function that it returns gives the new number of a change, 0 for one that is not there any more.
func (l *Log) Prepend(stored []Entry) (renumbered func(uint64) uint64) {
	if len(stored) == 0 {
		return func(n uint64) uint64 { return n }
	}
	numbers := map[uint64]uint64{}
	type id struct {
		object  model.Object
		version string
		verb    model.ChangeVerb
	}
	idOf := func(e Entry) id { return id{e.Object, e.Version, e.Verb} }
	known := map[id]bool{}
	for _, e := range stored {
		known[idOf(e)] = true
	}
	own := l.entries
	for i, e := range slices.Backward(own) {
		if known[idOf(e)] {
			own = own[i+1:] // what is before it was let go there
			break
		}
	}
	l.entries, l.bytes, l.last = nil, 0, stored[len(stored)-1].Number
	for _, e := range stored {
		e.ready, e.saved = true, true
		l.entries = append(l.entries, e)
		l.resize(&l.entries[len(l.entries)-1])
	}
	for _, e := range own {
		l.last++
		numbers[e.Number] = l.last
		e.Number, e.saved = l.last, false
		l.entries = append(l.entries, e)
		l.bytes += e.size
	}
	l.trim()
	return func(n uint64) uint64 { return numbers[n] }
}

// List are the changes, the newest first.
func (l *Log) List() []model.Change {
	list := make([]model.Change, 0, len(l.entries))
	for _, e := range slices.Backward(l.entries) {
		if e.ready {
			list = append(list, e.Change)
		}
	}
	return list
}

// Unsaved are the records of all that has changed since Unsaved or Records were called last.
func (l *Log) Unsaved() [][]byte { return l.records(func(e Entry) bool { return !e.saved }) }

// Records are the records of everything.
func (l *Log) Records() [][]byte { return l.records(func(Entry) bool { return true }) }

func (l *Log) records(which func(Entry) bool) (records [][]byte) {
	for i := range l.entries {
		e := &l.entries[i]
		if !e.ready || !which(*e) {
			continue
		}
		b, err := json.Marshal(e)
		if err != nil {
			continue // a time beyond year 9999; it is shown, and not kept
		}
		e.saved = true
		records = append(records, b)
	}
	return records
}

// Read reads records in the order in which they were given. A later one of the same change replaces the earlier.
func Read(records [][]byte) ([]Entry, error) {
	var entries []Entry
	for _, b := range records {
		var e Entry
		if err := json.Unmarshal(b, &e); err != nil {
			return entries, fmt.Errorf("a change that was kept: %w", err)
		}
		i, is := slices.BinarySearchFunc(entries, e.Number, func(e Entry, n uint64) int { return cmp.Compare(e.Number, n) })
		if is {
			entries[i] = e
		} else {
			entries = slices.Insert(entries, i, e)
		}
	}
	return entries, nil
}

func (l *Log) find(number uint64) int {
	i, is := slices.BinarySearchFunc(l.entries, number, func(e Entry, n uint64) int { return cmp.Compare(e.Number, n) })
	if !is {
		return -1
	}
	return i
}

func (l *Log) resize(e *Entry) {
	l.bytes -= e.size
	e.size = sizeOf(*e)
	l.bytes += e.size
}

// trim lets go of the oldest entries beyond the bounds.
func (l *Log) trim() {
	n := max(0, len(l.entries)-MaxEntries)
	for i := range n {
		l.bytes -= l.entries[i].size
	}
	for n < len(l.entries)-1 && l.bytes > l.bound {
		l.bytes -= l.entries[n].size
		n++
	}
	if n > 0 {
		clear(l.entries[:n])
		l.entries = l.entries[n:]
	}
}

// sizeOf is about what an entry takes in memory and as a record, bytes.
func sizeOf(e Entry) int {
	n := 400 + len(e.Who) + len(e.Object.Namespace) + len(e.Object.Name) + len(e.Version)
	for _, f := range e.Diff {
		n += 80 + len(f.Path) + len(f.Old) + len(f.New)
	}
	for _, m := range e.Machines {
		n += 80 + len(m.Machine)
	}
	return n
}
