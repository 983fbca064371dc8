package delta

import "container/list"

// item is what the stream knows of one client and one name. A wildcard
// subscription keeps an item only while the client deviates from the sets: no item
// means that it holds exactly what they hold.
type item struct {
	name string
	want *entry // nil: the name should be absent

	// What the client is known to hold: nothing is known before it was told (or
	// told us) for the first time. The empty version is absence.
	known bool
	have  string
	// The client may hold something else than have. Either the name was in a refused
	// response with others, and clients may have taken part of it; or it is sent again,
	// and the client may have dropped it. What it may hold is have or tried, or, with
	// several, any other version or nothing.
	unsure  bool
	tried   string
	several bool

	inFlight bool
	sent     string // the version in flight

	refusal *refusal // of want's version, standing alone

	explicit bool // subscribed to by name
	force    bool // send even what the client holds
	dropped  bool // no longer part of its subscription

	// Of an item that is needed or in flight: the client lacks something of owed, and perhaps
	// of later revisions. The zero revision is before all. next is the first revision that
	// changed the name since what is in flight was sent; zero: none.
	owed, next Revision
	place      int // in the subscription's debts, from 1; 0: it is not there
	// past are what want was, oldest first, of an item of a type that is held back: since the
	// version sent last, with the revision of each.
	past []version
	held *list.Element // its place among the subscription's items with past versions

	needed  bool // there is something to send
	queued  bool // is in the subscription's queue
	grouped bool // is in one of the subscription's retry groups

	watches []*watch // one a layer, of an explicit item
}

// version is what a name was from a revision on.
type version struct {
	revision Revision
	entry    *entry
}

type refusal struct {
	version string
	message string
}

// needs says whether the client must be sent something about the name that is
// not on its way already.
func (it *item) needs() bool {
	target := it.want.version()
	switch {
	case it.force:
		return true
	case it.inFlight:
		return it.sent != target
	case it.refusal != nil:
		return false // settle drops a refusal of any other version
	case it.unsure:
		return true
	case it.known:
		return it.have != target
	default:
		return target != "" || it.explicit
	}
}

// doubt notes that the sent version was refused together with others.
func (it *item) doubt() {
	it.several = it.unsure && (it.several || it.tried != it.sent)
	it.unsure, it.tried = true, it.sent
}

// mistrust notes that the client may hold any version, or nothing. Only an ack ends that.
func (it *item) mistrust() { it.unsure, it.several = true, true }

// refuse notes that the sent version was refused standing alone. If no other
// version was tried, the client did not take it from among others either.
func (it *item) refuse(message string) {
	it.refusal = &refusal{version: it.sent, message: message}
	if !it.several && it.tried == it.sent {
		it.unsure = false
	}
}

// idle says that the item tells nothing that its absence would not tell.
func (it *item) idle() bool {
	return !it.explicit && !it.needed && !it.queued && !it.grouped && !it.inFlight && it.refusal == nil
}
