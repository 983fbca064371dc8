package v1

import (
	"time"
)

// Revision is one step of routing that a plane can turn back.
type Revision struct {
	Number uint64    `json:"revision"`
	Epoch  uint64    `json:"epoch"`
	At     time.Time `json:"at"`
	// Changes of listeners, hosts and server names, and the first of their Owners.
	Changes int      `json:"changes"`
	Owners  []Object `json:"owners"`
	// Held is set when a Freeze holds it back.
	Held bool `json:"held,omitempty"`
	// Kept is set once it would outlive the plane.
	Kept bool `json:"kept,omitempty"`
	// First is the oldest state that is known: LetGo revisions before it are no more, and
	// Lacks says why none of a plane before this one are.
	First bool   `json:"first,omitempty"`
	LetGo int    `json:"letGo,omitempty"`
	Lacks string `json:"lacks,omitempty"`
}
