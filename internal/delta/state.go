package delta

// Phase is how far a client follows one name.
type Phase int

// The phases of a name.
const (
	// Unknown: the client does not follow the name, or follows everything and
	// there is no such name.
	Unknown Phase = iota
	// Pending: something is to be sent.
	Pending
	// Sent: the present version, or absence, is in flight.
	Sent
	// Acked: the client holds the present version, or knows that there is none.
	Acked
	// Nacked: the client refused the present version and keeps what it had.
	Nacked
)

// String names the phase in lower case.
func (p Phase) String() string {
	switch p {
	case Pending:
		return "pending"
	case Sent:
		return "sent"
	case Acked:
		return "acked"
	case Nacked:
		return "nacked"
	default:
		return "unknown"
	}
}

// State is what a stream knows of one name.
type State struct {
	Phase Phase
	// Version is the present one, that the phase speaks of; empty is absence.
	Version string
	// Held is the version that the client last acknowledged, empty for none.
	Held string
	// Message is why the client refused Version, when Nacked.
	Message string
}

// State tells what the client holds and is about to hold under a name.
func (st *Stream) State(t Type, name string) State {
	sub := st.byType[t]
	if sub == nil {
		return State{}
	}
	it := sub.items[name]
	if it == nil {
		if e := st.lookup(t, name); sub.wild && e != nil {
			return State{Phase: Acked, Version: e.version(), Held: e.version()}
		}
		return State{}
	}
	state := State{Version: it.want.version(), Held: it.have}
	switch {
	case it.needed:
		state.Phase = Pending
	case it.inFlight:
		state.Phase = Sent
	case it.refusal != nil:
		state.Phase, state.Message = Nacked, it.refusal.message
	case it.known:
		state.Phase = Acked
	}
	return state
}
