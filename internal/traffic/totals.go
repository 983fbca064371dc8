package traffic

import "fairlead.dev/internal/model"

// Other is the name of what is beyond the bound of Totals.
const Other = "other"

// Totals adds up what the proxies of one machine have counted, one after the other, by one group. At most so many names have a total
// of their own, which namespaces share (seats). What is beyond is Other's. A total never shrinks; it goes with the seat of its name.
type Totals struct {
	by    By
	seats *seats[string]
	last  map[model.RequestFigures][model.StatusClasses]uint64 // of the present proxy
	names map[string]*[model.StatusClasses]uint64
	only  func(name string) bool // nil: all names
}

// NewTotals returns empty Totals.
func NewTotals(by By, most int) *Totals {
	return &Totals{by: by, seats: newSeats[string](most, quietTurns), last: map[model.RequestFigures][model.StatusClasses]uint64{}, names: map[string]*[model.StatusClasses]uint64{}}
}

// Only returns Totals of some names; the requests of others are in none.
func (t *Totals) Only(these func(name string) bool) *Totals {
	t.only = these
	return t
}

// Take adds what has been counted since the last call. Counters that are gone, or smaller, are those of another proxy.
func (t *Totals) Take(figures []model.RequestFigures) {
	t.seats.turn()
	next := make(map[model.RequestFigures][model.StatusClasses]uint64, len(figures))
	for i := range figures {
		f := &figures[i]
		key := f.Key()
		old := t.last[key]
		for class, n := range f.Classes {
			if n < old[class] {
				old = [model.StatusClasses]uint64{}
			}
		}
		name := t.by.name(f)
		if t.only != nil && !t.only(name) {
			continue
		}
		total := t.of(name, t.by.sharedBy(f), f.Classes != old)
		for class, n := range f.Classes {
			total[class] += n - old[class]
		}
		next[key] = f.Classes
	}
	t.last = next
}

func (t *Totals) of(name, namespace string, counts bool) *[model.StatusClasses]uint64 {
	has, gone := t.seats.has(name, namespace, counts)
	if gone != nil {
		delete(t.names, *gone)
	}
	if !has {
		name = Other
	}
	if t.names[name] == nil {
		t.names[name] = new([model.StatusClasses]uint64)
	}
	return t.names[name]
}

// All calls f with each total that is not 0.
func (t *Totals) All(f func(name string, class model.StatusClass, n uint64)) {
	for name, total := range t.names {
		for class, n := range total {
			if n > 0 {
				f(name, model.StatusClass(class), n)
			}
		}
	}
}
