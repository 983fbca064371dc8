package delta

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// Limits of a stream whose Options leave them zero.
const (
	// DefaultMaxResponseBytes keeps a response, with room to spare, under the
	// 4 MiB that gRPC clients accept unless told otherwise.
	DefaultMaxResponseBytes = 2 << 20
	// DefaultMaxNames bounds what one client can make the other side remember.
	DefaultMaxNames = 1 << 20
	// DefaultMaxTypes is several times what Envoy and an agent ask for.
	DefaultMaxTypes = 64
)

// Options of a Stream. The zero value is useful.
type Options struct {
	// Last are types that are held back: the client is sent a version only when it
	// has answered about everything of every other type that is of that version's
	// revision or older, and about the types before it in this list. While newer
	// changes go on it is sent older versions, so that a stream that never comes to
	// rest never stays without one. A client subscribes to them after everything else.
	Last []Type
	// Floor is the revision that such an older version must not be before.
	Floor Revision
	// MaxResponseBytes splits larger responses; a single larger resource
	// travels alone. Zero means DefaultMaxResponseBytes.
	MaxResponseBytes int
	// MaxNames bounds the names that the client may be subscribed to or claim to
	// hold, over all types. Zero means DefaultMaxNames.
	MaxNames int
	// MaxTypes bounds the types that a client may ask for. Zero means
	// DefaultMaxTypes.
	MaxTypes int
	// Wake is called when the stream goes from nothing to send to something to
	// send, from within Set.Update, Receive or SetLayers. It must not call back
	// into the package. It is not called again until Next has returned nil.
	Wake func()
	// Refused is called when a name begins to stay behind because the client refuses its
	// present version, standing alone, and with an Event that is not Refused when that
	// ends. It is called as Wake is, and from within Resend, but not by Close.
	Refused func(Event)
}

// Stream is the server's half of one client's delta xDS stream. See Set for who
// may call it when.
type Stream struct {
	options  Options
	layers   []*Set
	subs     []*subscription // in the order of their first request
	byType   map[Type]*subscription
	names    int // explicit subscriptions and claims of the first requests
	nonce    uint64
	revision Revision
	awake    bool
	events   []Event
}

// NewStream starts a stream that follows the union of sets. The same type and
// name must not be in two of them; where it is, the first set wins.
func NewStream(o Options, sets ...*Set) *Stream {
	if o.MaxResponseBytes <= 0 {
		o.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if o.MaxNames <= 0 {
		o.MaxNames = DefaultMaxNames
	}
	if o.MaxTypes <= 0 {
		o.MaxTypes = DefaultMaxTypes
	}
	return &Stream{options: o, layers: slices.Clone(sets), byType: map[Type]*subscription{}}
}

// Protocol violations. Receive wraps them with what the request said.
var (
	ErrNoType       = errors.New("request without a type URL")
	ErrLocators     = errors.New("resource locators are not supported")
	ErrTooManyTypes = errors.New("too many resource types")
	ErrTooManyNames = errors.New("too many resource names")
	ErrNoWildcard   = errors.New("the client does not follow everything")
	ErrLateClaims   = errors.New("claims are for the first request of a type")
)

// wildcard is the name that stands for every resource of a type.
const wildcard = "*"

// Receive takes one request: an ack or nack, changed subscriptions, or both. An
// error is a violation of the protocol and the stream must end; the state is then
// that of before the request. A request whose nonce is not the outstanding one
// acknowledges nothing, but its subscriptions count.
func (st *Stream) Receive(req *discoveryv3.DeltaDiscoveryRequest) error {
	sub, err := st.admit(req)
	if err != nil {
		return err
	}
	first := sub == nil
	if first {
		sub = newSubscription(st, Type(req.GetTypeUrl()))
		st.subs = append(st.subs, sub)
		st.byType[sub.typ] = sub
	}
	if out := sub.outstanding; out != nil && req.GetResponseNonce() == out.nonce {
		sub.outstanding = nil
		if detail := req.GetErrorDetail(); detail != nil {
			sub.refused(out, detail.GetMessage())
		} else {
			sub.accepted(out)
		}
	}
	sub.opening = first
	if first {
		sub.open(req)
	} else {
		names, all := req.GetResourceNamesSubscribe(), false
		for _, name := range names {
			switch {
			case name != wildcard:
				sub.subscribe(name)
			case !all: // once, however often it is named: it costs as much as there is
				all = true
				sub.subscribeAll(len(names) == 1)
			}
		}
	}
	for _, name := range req.GetResourceNamesUnsubscribe() {
		sub.unsubscribe(name)
	}
	sub.tidy()
	st.poke()
	return nil
}

// Claim adds to what the client's first request of a type said that it holds, which must have
// followed everything. An owner who must not be held up by a large request so takes it in parts, before
// the first Next and before the type's next request: later ones claim nothing. An error is as Receive's.
func (st *Stream) Claim(t Type, versions map[string]string) error {
	sub := st.byType[t]
	if sub == nil || !sub.wild {
		return fmt.Errorf("claims of %s: %w", t, ErrNoWildcard)
	}
	if !sub.opening {
		return fmt.Errorf("claims of %s: %w", t, ErrLateClaims)
	}
	if st.names+len(versions) > st.options.MaxNames {
		return fmt.Errorf("claims of %s: %w: at most %d", t, ErrTooManyNames, st.options.MaxNames)
	}
	st.names += len(versions)
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		sub.claim(name, versions[name])
	}
	sub.greet = sub.greet && len(versions) == 0
	sub.tidy()
	st.poke()
	return nil
}

// admit checks a request before anything is changed by it.
func (st *Stream) admit(req *discoveryv3.DeltaDiscoveryRequest) (*subscription, error) {
	t := Type(req.GetTypeUrl())
	if t == "" {
		return nil, ErrNoType
	}
	if len(req.GetResourceLocatorsSubscribe())+len(req.GetResourceLocatorsUnsubscribe()) > 0 {
		return nil, fmt.Errorf("request for %s: %w", t, ErrLocators)
	}
	sub := st.byType[t]
	if sub == nil && len(st.subs) >= st.options.MaxTypes {
		return nil, fmt.Errorf("request for %s: %w: at most %d", t, ErrTooManyTypes, st.options.MaxTypes)
	}
	names := st.names + len(req.GetResourceNamesSubscribe())
	if sub == nil {
		names += len(req.GetInitialResourceVersions())
	}
	if names > st.options.MaxNames {
		return nil, fmt.Errorf("request for %s: %w: at most %d", t, ErrTooManyNames, st.options.MaxNames)
	}
	return sub, nil
}

// Next returns the next response to send, or nil when there is nothing to send
// now. The owner calls it until it returns nil. The response shares its resources
// with the Set and must not be changed.
func (st *Stream) Next() *discoveryv3.DeltaDiscoveryResponse {
	for _, sub := range st.subs {
		sub.opening = false
	}
	for _, sub := range st.subs {
		if !sub.sendable() {
			continue
		}
		limit, held := st.limit(sub)
		if !held {
			return sub.respond()
		}
		if resp := sub.respondBefore(limit); resp != nil {
			return resp
		}
	}
	st.awake = false
	return nil
}

// Settled says that nothing of the type waits to be sent or answered: everything
// is acked, or refused and standing alone. A type that the client never asked for
// is settled.
func (st *Stream) Settled(t Type) bool {
	sub := st.byType[t]
	return sub == nil || sub.settled()
}

// Subscribed says whether the client has asked for the type on this stream.
func (st *Stream) Subscribed(t Type) bool { return st.byType[t] != nil }

// Revision is the largest revision of the sets that the stream has sent
// something at.
func (st *Stream) Revision() Revision { return st.revision }

// Resend makes the next response of the type carry the name, whatever the client
// holds, if the client follows it and it exists. To one that follows everything a name that
// does not exist is said to be gone. Otherwise it does nothing. Envoy
// needs that: a cluster that it replaces waits for its endpoints to be sent again,
// though it never asks for them, and it answers the response with the cluster only
// then. So they are resent when Next gives a response with the cluster.
func (st *Stream) Resend(t Type, name string) {
	if sub := st.byType[t]; sub != nil {
		sub.resend(name)
		st.poke()
	}
}

// SetLayers makes the stream follow other sets from now on. What the client holds
// of the old ones stays its baseline: only differences are sent, removals among
// them.
func (st *Stream) SetLayers(sets ...*Set) {
	old := st.layers
	if slices.Equal(old, sets) {
		return
	}
	st.layers = slices.Clone(sets)
	for _, sub := range st.subs {
		sub.relayer(old)
	}
	st.poke()
}

// Close makes the stream follow nothing. It must not be used afterwards, and must
// be called for the sets to forget it.
func (st *Stream) Close() {
	for _, sub := range st.subs {
		sub.close()
	}
	st.subs, st.layers, st.names = nil, nil, 0
	st.byType = map[Type]*subscription{}
	st.options.Wake, st.options.Refused = nil, nil
}

// Event is one answer of the client about one name. A removal, or the answer that
// a name is unknown, has no Version.
type Event struct {
	Type    Type
	Name    string
	Version string
	// Refused: the client does not want this version; Message is what it said.
	// Only a resource that was refused standing alone gives this event. An empty
	// Name stands for a response without resources.
	Refused bool
	Message string
}

// Events returns what was acked and refused since the last call, in order. An
// owner that does not drain it lets it grow with every answer.
func (st *Stream) Events() []Event {
	events := st.events
	st.events = nil
	return events
}

// rank is the place of a type that is held back; negative: it is not.
func (st *Stream) rank(sub *subscription) int { return slices.Index(st.options.Last, sub.typ) }

// limit is since when the client lacks something that comes before sub; held is false
// when it lacks nothing, or sub waits for nothing.
func (st *Stream) limit(sub *subscription) (limit Revision, held bool) {
	rank := st.rank(sub)
	if rank < 0 {
		return Revision{}, false
	}
	for _, other := range st.subs {
		if r := st.rank(other); r >= rank {
			continue
		}
		if since, lacks := other.oldest(); lacks && (!held || since.Compare(limit) < 0) {
			limit, held = since, true
		}
	}
	return limit, held
}

// poke wakes the owner if there is something to send and it may not know.
func (st *Stream) poke() {
	if st.awake || st.options.Wake == nil {
		return
	}
	for _, sub := range st.subs {
		if !sub.sendable() {
			continue
		}
		if limit, held := st.limit(sub); !held || sub.canBefore(limit) {
			st.awake = true
			st.options.Wake()
			return
		}
	}
}

// lookup finds what the client should hold under a name.
func (st *Stream) lookup(t Type, name string) *entry {
	for _, set := range st.layers {
		if e := set.entry(t, name); e != nil {
			return e
		}
	}
	return nil
}

// before is lookup as it was when set held old under that name.
func (st *Stream) before(t Type, name string, set *Set, old *entry) *entry {
	for _, layer := range st.layers {
		e := old
		if layer != set {
			e = layer.entry(t, name)
		}
		if e != nil {
			return e
		}
	}
	return nil
}
