package bgp

import (
	"strings"

	"fairlead.dev/internal/model"
)

// weight is how much a failure tells of why there is no session. Attempts go on after a router said why it ended one,
// and most of them end with less: a connection that is closed without a word.
type weight int

const (
	// symptom is what the network or a timer shows. The last one counts.
	symptom weight = iota
	// passing is what was said of a state that should not last: a symptom that follows says more of what does, unless it is
	// a connection closed without a word.
	passing
	// cause is what one side said of why it wants no session. It stands until there is one.
	cause
)

func (f *failure) weight() weight {
	switch f.reason {
	case model.SessionFlapping:
		return passing
	case model.SessionNotified, model.SessionWrongAS, model.SessionWrongRole, model.SessionNoFamily, model.SessionProtocolError, model.SessionTooManyPrefixes, model.SessionFault:
		if f.passes {
			return passing
		}
		return cause
	}
	return symptom
}

// forNow marks a NOTIFICATION after which a session should come back.
func (f *failure) forNow() *failure {
	f.passes = true
	return f
}

// yields reports whether the failure that stands gives way to a later one.
func (f *failure) yields(later *failure) bool {
	if f == nil || f.blocked || later.blocked || later.weight() >= f.weight() {
		return true
	}
	return f.weight() == passing && later.reason != model.SessionReset
}

// account is what to say of why there is no session, when the failure f follows the one that stands: the one of the two
// that tells more, with the other's message where it is older.
func account(stands, f *failure, c model.Peer) (model.SessionReason, string) {
	if stands.yields(f) {
		return f.reason, f.message
	}
	return stands.reason, stands.message + "; since then: " + strings.TrimPrefix(f.message, where(c))
}
