package gate

import (
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
)

// Feed is what one Envoy follows: a gate, the set that the gate changes, and the stream by
// which Envoy is told. One stream is served at a time, the newest. After each call that may
// change anything the owner calls Advance.
type Feed struct {
	*Gate

	set    *delta.Set
	stream *delta.Stream // nil while no Envoy is connected
	wake   func()        // of the stream: look again

	remembered bool                // what Envoy uses is only remembered
	opened     time.Time           // when the stream said which clusters Envoy has
	foreign    map[string]struct{} // clusters that Envoy brought and that are not known here
	foreignEnd time.Time           // when Envoy needs them no longer; zero: not known yet
	dropping   map[string]struct{} // clusters that Envoy is to lose when it connects next
	ending     *delta.Stream       // to be ended, so that Envoy connects anew
	doubted    bool                // Envoy did not use what it held: its next stream is told all again
	doubting   bool                // the stream is that next one
}

// New makes a feed that knows nothing, of which nobody is told.
func New() *Feed { return &Feed{Gate: newGate(), set: delta.NewSet()} }

// Restore puts back what an earlier agent remembered of what Envoy had last accepted. It must
// come after the Target that was remembered, and before anything else.
func (f *Feed) Restore(good []delta.Change) {
	f.remembered = true
	f.restore(good)
}

// Remembered says that no Envoy has said yet what it has: what is known of it is remembered.
func (f *Feed) Remembered() bool { return f.remembered }

// Get is what Envoy is to have of a name.
func (f *Feed) Get(t delta.Type, name string) (delta.Resource, bool) { return f.set.Get(t, name) }

// Advance lets the gate decide, and hands what it decided to the stream; revision is the
// newest that the plane has sent. good is what Envoy accepted since, to be remembered: a nil
// Resource says that the name is gone. wake is when Advance must be called again even if
// nothing happens; zero: never.
func (f *Feed) Advance(now time.Time, revision delta.Revision) (good []delta.Change, wake time.Time) {
	for {
		decided := f.step(now)
		good, wake = append(good, decided.good...), decided.wake
		f.set.Update(revision, decided.changes)
		if f.stream != nil {
			for _, name := range decided.resend {
				f.stream.Resend(typeEndpoint, name)
			}
		}
		f.dropForeign(now)
		if len(f.foreign) > 0 {
			wake = sooner(wake, f.foreignEnd)
		}
		if len(decided.changes) == 0 {
			break
		}
		f.confirm(decided.changes, f.follows)
	}
	if f.stream != nil {
		f.wake() // not only for what is to be sent: a listener may be held back
	}
	return good, wake
}

// follows is what the stream says of a name.
func (f *Feed) follows(t delta.Type, name string) delta.State {
	if f.stream == nil {
		return delta.State{}
	}
	return f.stream.State(t, name)
}

// Connect makes a new stream of Envoy the one that is served. wake is called when there may be
// something to send, or the stream may have to end; it must not block or call back.
func (f *Feed) Connect(wake func()) *delta.Stream {
	if f.stream != nil {
		f.stream.Close()
	}
	f.stream, f.wake = delta.NewStream(delta.Options{Wake: wake}, f.set), wake
	f.doubting, f.doubted = f.doubted, false
	return f.stream
}

// Disconnect ends a stream, unless a newer one has replaced it.
func (f *Feed) Disconnect(stream *delta.Stream) {
	if f.stream == stream {
		f.stream.Close()
		f.stream = nil
	}
}

// AsksActive says whether Envoy must be asked which of the clusters that it holds it uses.
func (f *Feed) AsksActive(held map[string]string) bool { return f.remembered && len(held) > 0 }

// Open tells the gate which clusters Envoy says it has, by its first request for clusters, and
// which of them it uses if that is known. It returns the request to go on with.
//
// The last moments before an agent was killed may not have reached its disk. Then Envoy has
// clusters that are not known here, and routes to them. They are left to it until its routes
// have been brought in line and the drain time has passed; then the stream is ended once, and
// when Envoy comes back they are taken away.
func (f *Feed) Open(stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest, active map[string]struct{}, now time.Time) *discoveryv3.DeltaDiscoveryRequest {
	if f.stream != stream {
		return req
	}
	known := map[string]string{}
	foreign := map[string]struct{}{}
	for name, version := range req.GetInitialResourceVersions() {
		_, there := f.set.Get(typeCluster, name)
		if _, dropped := f.dropping[name]; there || dropped {
			known[name] = version
		} else {
			foreign[name] = struct{}{}
		}
	}
	f.opened, f.remembered = now, false
	f.foreign, f.dropping, f.foreignEnd = foreign, nil, time.Time{}
	if len(foreign) > 0 {
		req = proto.CloneOf(req)
		req.InitialResourceVersions = known
	}
	f.connected(known, active)
	return req
}

// dropForeign has the stream ended when the clusters that are not known here have had their time.
func (f *Feed) dropForeign(now time.Time) {
	switch {
	case len(f.foreign) == 0 || !f.routed():
	case f.foreignEnd.IsZero():
		f.foreignEnd = now.Add(f.drain)
	case !now.Before(f.foreignEnd):
		f.dropping, f.foreign, f.ending = f.foreign, nil, f.stream
	}
}

// Ends says whether a stream must be ended, for Envoy to connect anew.
func (f *Feed) Ends(stream *delta.Stream) bool { return f.ending == stream }

// Request handles a request of Envoy. It returns false when the stream is no longer the one that
// is served.
func (f *Feed) Request(stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest) (bool, error) {
	if f.stream != stream {
		return false, nil
	}
	err := stream.Receive(f.disbelieve(req))
	events := stream.Events()
	f.observe(events)
	f.relent(events, f.follows)
	return true, err
}

// disbelieve removes from the first request of a type what Envoy says that it holds, where
// that is not to be believed: Envoy is told all again. Of scopes it never is, since Envoy drops
// those in use with its last listener, and says that it holds them; of other types, when the
// last stream was ended because Envoy did not use what it held.
func (f *Feed) disbelieve(req *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryRequest {
	t := delta.Type(req.GetTypeUrl())
	if len(req.GetInitialResourceVersions()) == 0 || f.stream.Subscribed(t) || t != typeScope && (!f.doubting || t == typeCluster) {
		return req
	}
	req = proto.CloneOf(req)
	for name := range req.GetInitialResourceVersions() {
		req.InitialResourceVersions[name] = "" // held, in whichever version
	}
	return req
}

// Next is the next response for Envoy, nil for none now.
func (f *Feed) Next(stream *delta.Stream) *discoveryv3.DeltaDiscoveryResponse {
	if f.stream != stream {
		return nil
	}
	resp := stream.Next()
	if resp == nil {
		return nil
	}
	names := make([]string, len(resp.GetResources()))
	for i, r := range resp.GetResources() {
		names[i] = r.GetName()
	}
	for _, k := range f.sent(delta.Type(resp.GetTypeUrl()), names) {
		stream.Resend(k.kind, k.name)
	}
	return resp
}

// Warm says whether a new Envoy may be given listeners: every cluster is warm, or has had its
// time, which ends at the deadline.
func (f *Feed) Warm(now time.Time) (warm bool, deadline time.Time) {
	deadline = f.opened.Add(waitGrace)
	return f.isWarm() || !now.Before(deadline), deadline
}

// Polling says whether Envoy must be asked for its warming clusters, and the number to give to
// Warming with the answer.
func (f *Feed) Polling() (wanted bool, seq uint64) { return f.stream != nil && f.polls(), f.seq }

// Looks is the question about what Envoy uses, if one is to be asked now; next is when one will
// be otherwise; round changes when something new is in doubt.
func (f *Feed) Looks(now time.Time) (look Look, wanted bool, next time.Time, round uint64) {
	round = f.witness.round
	if f.stream == nil || !f.stream.Subscribed(typeListener) {
		return Look{}, false, time.Time{}, round
	}
	look, wanted, next = f.looks(now)
	return look, wanted, next, round
}

// Saw notes the answer, and begins the mending that a stream can do.
func (f *Feed) Saw(look Look, seen Seen, now time.Time) Mend {
	if f.stream == nil {
		return Mend{}
	}
	m := f.observeUse(look, seen, now)
	switch m.Step {
	case MendResend:
		for _, k := range m.again {
			f.stream.Resend(k.kind, k.name)
		}
	case MendReconnect:
		f.ending, f.doubted = f.stream, true
	}
	return m
}

// Has says whether Envoy has a listener: it took the listener on this stream or, as a proxy
// that outlived its stream or the agent before, earlier. Envoy goes on with what it took while
// it connects and while it waits. Where a witness says what Envoy uses, it counts only if it
// serves.
func (f *Feed) Has(listener string) bool {
	_, has := f.accepting[listener]
	it := f.items[key{typeListener, listener}]
	if f.witness.able {
		has = has && it != nil && it.serving
	}
	if it != nil && (f.remembered || f.survivor) {
		has = has || it.good != nil && it.live != nil
	}
	return has
}
