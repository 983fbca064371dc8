package v1

import "time"

// The verbs of a Change.
const (
	ChangeCreated ChangeVerb = "created"
	ChangeChanged ChangeVerb = "changed"
	ChangeDeleted ChangeVerb = "deleted"
)

// ChangeVerb says what became of an object.
type ChangeVerb string

// Change is one change of an object in the API, as the plane that leads saw it.
type Change struct {
	// Number grows from change to change, and tells one from all others.
	Number uint64 `json:"number"`
	// Epoch and Revision are those of what machines were sent because of it. Without a revision no machine was sent
	// anything at once.
	Epoch    uint64    `json:"epoch,omitempty"`
	Revision uint64    `json:"revision,omitempty"`
	At       time.Time `json:"at"`
	// Who is the user of the API who wrote the object last; empty: that is not known. It is never known of a deletion.
	Who    string        `json:"who,omitempty"`
	Verb   ChangeVerb    `json:"verb"`
	Object Object        `json:"object"`
	Diff   []FieldChange `json:"diff,omitempty"`
	// More is how many changed fields are not in Diff.
	More int `json:"more,omitempty"`
	// Machines are those whose proxies have it, the first first.
	Machines []MachineTime `json:"machines,omitempty"`
}

// FieldChange is one field of an object before and after a change. Old and New are JSON, and may be cut; a field that was
// not there is empty.
type FieldChange struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// MachineTime is when a machine reported that its proxy runs a change.
type MachineTime struct {
	Machine string    `json:"machine"`
	At      time.Time `json:"at"`
}
