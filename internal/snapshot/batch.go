package snapshot

import "time"

// Change is one object that came, changed or went.
type Change struct {
	Key Key
	// Object is the present object; nil says that it is gone.
	Object Object
	// Seen is when the source was told, of the first change if several were joined; zero: that is not known.
	Seen time.Time
}

// Batch is what changed since the batch before, each key once.
type Batch struct {
	// Changes are in the order in which their keys first changed.
	Changes []Change
	// Synced says that this batch and those before it hold at least one complete
	// list of every kind that the API serves.
	Synced bool
	// Number is that of a batch with discovered changes whose way is followed; 0: there are none.
	Number uint64
}
