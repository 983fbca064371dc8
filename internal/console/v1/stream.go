package v1

// Names of the events of a stream (the parameter watch=true of a list), in the order in which they come. An event "current" has an
// ID, with which a stream that has ended begins again where it was (the header Last-Event-ID).
const (
	// EventReset says that blocks follow which are the whole list: what was known before does not count.
	EventReset = "reset"
	// EventBlock has a part of the list: {"key": "...", "rows": [...]}. It takes the place of the block of that key; without rows
	// the block is gone. Blocks are sorted by their keys.
	EventBlock = "block"
	// EventCurrent says that the list is as it was at a plane at a time, by a Current.
	EventCurrent = "current"
)

// Current is which revision a plane had published when a list was as it is shown, and the epoch in which it leads.
type Current struct {
	Epoch    uint64 `json:"epoch"`
	Revision uint64 `json:"revision"`
}
