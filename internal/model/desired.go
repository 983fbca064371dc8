package model

// ViewID names a view: what one or more machines are allowed to see, and so
// what their streams are made of. Machines that serve the same listeners share
// one view, so a change is prepared once for all of them.
type ViewID string

// View lists the listeners that the machines of a view serve, in order. What
// else they see follows from it: the virtual hosts of those listeners, the groups
// that these name, and the sets of those groups.
type View struct {
	ID        ViewID       `json:"id"`
	Listeners []ListenerID `json:"listeners"`
}

// Machine is what one machine must know about itself.
type Machine struct {
	Name     string `json:"name"`
	View     ViewID `json:"view"`
	Cordoned bool   `json:"cordoned"`
	// DrainSeconds is how long connections may finish.
	DrainSeconds uint32 `json:"drainSeconds"`
}
