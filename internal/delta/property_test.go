package delta

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	typeA    Type = "type.example/a"
	typeB    Type = "type.example/b"
	typeLast Type = "type.example/last"
)

// text makes a resource whose version is its content. Content that begins with
// "bad" is refused by the model client.
func text(name, content string) *Resource {
	return &Resource{Name: name, Version: content, Body: &anypb.Any{TypeUrl: "type.example/text", Value: []byte(content)}}
}

// modelClient is a naive client: it keeps what it was told, and what it follows.
type modelClient struct {
	rng   *rand.Rand
	types map[Type]*modelType
	// What is on the wire, each way, in order.
	toServer []*discoveryv3.DeltaDiscoveryRequest
	toClient []*discoveryv3.DeltaDiscoveryResponse
}

type modelType struct {
	opened, wild bool
	names        map[string]bool
	held         map[string]string
}

func (c *modelClient) typ(t Type) *modelType {
	m := c.types[t]
	if m == nil {
		m = &modelType{names: map[string]bool{}, held: map[string]string{}}
		c.types[t] = m
	}
	return m
}

func (m *modelType) follows(name string) bool { return m.wild || m.names[name] }

func (m *modelType) forget() {
	for name := range m.held {
		if !m.follows(name) {
			delete(m.held, name)
		}
	}
}

// subscribe changes the subscription by one request, on the first one with what
// the client holds.
func (c *modelClient) subscribe(t Type, add, remove []string) {
	m := c.typ(t)
	req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t), ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove}
	if !m.opened && len(add) == 0 && len(remove) == 0 {
		m.wild = true
	}
	for _, name := range add {
		if name == wildcard {
			m.wild = true
			continue
		}
		if m.opened && c.rng.IntN(2) == 0 {
			delete(m.held, name) // it dropped the resource and wants it again
		}
		m.names[name] = true
	}
	for _, name := range remove {
		if name == wildcard {
			m.wild = false
		}
		delete(m.names, name)
	}
	m.forget()
	if !m.opened {
		req.InitialResourceVersions = maps.Clone(m.held)
		m.opened = true
	}
	c.toServer = append(c.toServer, req)
}

// reconnect loses the wire and states all subscriptions anew.
func (c *modelClient) reconnect() {
	c.toServer, c.toClient = nil, nil
	for _, t := range slices.Sorted(maps.Keys(c.types)) {
		m := c.types[t]
		if !m.opened {
			continue
		}
		m.opened = false
		names := slices.Sorted(maps.Keys(m.names))
		if m.wild && (len(names) > 0 || c.rng.IntN(2) == 0) {
			names = append(names, wildcard)
		}
		if !m.wild && len(names) == 0 {
			m.held = map[string]string{}
			continue // nothing to ask for
		}
		c.subscribe(t, names, nil)
	}
}

// answer applies the oldest response on the wire and acks or nacks it.
func (c *modelClient) answer() {
	resp := c.toClient[0]
	c.toClient = c.toClient[1:]
	m := c.typ(Type(resp.GetTypeUrl()))
	req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
	bad := slices.ContainsFunc(resp.GetResources(), func(r *discoveryv3.Resource) bool { return strings.HasPrefix(r.GetVersion(), "bad") })
	if bad {
		req.ErrorDetail = &status.Status{Message: "it is bad"}
	}
	partly := bad && c.rng.IntN(2) == 0 // as Envoy does with clusters
	if !bad || partly {
		for _, r := range resp.GetResources() {
			if m.follows(r.GetName()) && !strings.HasPrefix(r.GetVersion(), "bad") {
				m.held[r.GetName()] = r.GetVersion()
			}
		}
		for _, name := range resp.GetRemovedResources() {
			delete(m.held, name)
		}
	}
	c.toServer = append(c.toServer, req)
}

// world is a model client, the engine and the sets that it serves.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	client *modelClient
	stream *Stream
	shared [2]*Set
	own    *Set
	place  int
	rev    uint64
	woken  bool
	told   map[Event]bool // refusals
	// was is what each name was, and from which revision on.
	was map[Type]map[string][]versionAt
	// early counts what was sent of the last type while others were not settled.
	early int
}

type versionAt struct {
	rev     uint64
	version string
}

func (w *world) options() Options {
	w.told = map[Event]bool{}
	return Options{
		Last: []Type{typeLast}, MaxResponseBytes: 40 + w.rng.IntN(400),
		Wake: func() { w.woken = true }, Refused: tells(w.told),
	}
}

func (w *world) check() {
	w.t.Helper()
	if err := verify(w.stream); err != nil {
		w.t.Fatal(err)
	}
	if err := verifyRefusals(w.stream, w.told); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range []*Set{w.shared[0], w.shared[1], w.own} {
		if err := verifySet(s, w.stream); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) receive() {
	req := w.client.toServer[0]
	w.client.toServer = w.client.toServer[1:]
	if err := w.stream.Receive(req); err != nil {
		w.t.Fatal(err)
	}
}

// send takes one response, as an owner that was woken.
func (w *world) send() {
	if !w.woken {
		return
	}
	settled := w.stream.Settled(typeA) && w.stream.Settled(typeB)
	resp := w.stream.Next()
	if resp == nil {
		w.woken = false
		return
	}
	if Type(resp.GetTypeUrl()) == typeLast && !settled {
		w.early++
		for _, r := range resp.GetResources() {
			w.reached(r.GetVersion())
		}
	}
	for _, on := range w.client.toClient {
		if on.GetTypeUrl() == resp.GetTypeUrl() {
			w.t.Fatal("two responses of a type outstanding")
		}
	}
	w.client.toClient = append(w.client.toClient, resp)
}

// reached checks that the client lacks nothing of the revision of a version of the last type:
// what it holds was true at that revision or later.
func (w *world) reached(last string) {
	w.t.Helper()
	var rev uint64
	if _, err := fmt.Sscanf(strings.TrimLeft(last, "badgo"), "%d", &rev); err != nil {
		w.t.Fatal(err)
	}
	for _, t := range []Type{typeA, typeB} {
		m := w.client.typ(t)
		asks := func(r *discoveryv3.DeltaDiscoveryRequest) bool {
			return Type(r.GetTypeUrl()) == t && len(r.GetResourceNamesSubscribe())+len(r.GetResourceNamesUnsubscribe()) > 0
		}
		if !m.opened || !w.stream.Subscribed(t) || slices.ContainsFunc(w.client.toServer, asks) {
			continue // the stream does not know yet what it follows
		}
		for name, was := range w.was[t] {
			ok := !m.follows(name)
			for i, v := range was {
				later := i+1 == len(was) || was[i+1].rev > rev
				ok = ok || later && (v.version == m.held[name] || strings.HasPrefix(v.version, "bad"))
			}
			if !ok {
				w.t.Fatalf("told %q, but the client holds %q of %s %s, which was %v", last, m.held[name], t, name, was)
			}
		}
	}
}

// note keeps what the names are now.
func (w *world) note() {
	for _, t := range []Type{typeA, typeB} {
		for _, plain := range modelNames {
			for name, set := range map[string]*Set{plain: w.shared[w.place], "own-" + plain: w.own} {
				r, _ := set.Get(t, name)
				was := w.was[t][name]
				if len(was) == 0 {
					was = []versionAt{{}}
				}
				if was[len(was)-1].version != r.Version {
					was = append(was, versionAt{w.rev, r.Version})
				}
				if w.was[t] == nil {
					w.was[t] = map[string][]versionAt{}
				}
				w.was[t][name] = was
			}
		}
	}
}

var modelNames = []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"}

// update changes a set at random. Names of the shared sets and of the own set are
// disjoint.
func (w *world) update() {
	set, prefix := w.own, "own-"
	if i := w.rng.IntN(3); i < 2 {
		set, prefix = w.shared[i], ""
	}
	w.rev++
	var changes []Change
	for range 1 + w.rng.IntN(6) {
		c := Change{Type: []Type{typeA, typeB, typeLast}[w.rng.IntN(3)], Name: prefix + modelNames[w.rng.IntN(len(modelNames))]}
		switch n := w.rng.IntN(10); {
		case n < 3:
		case n < 5:
			c.Resource = text(c.Name, fmt.Sprintf("bad%d", w.rng.IntN(3)))
		default:
			c.Resource = text(c.Name, fmt.Sprintf("good%d", w.rng.IntN(4)))
		}
		if c.Resource != nil && c.Type == typeLast { // it says which revision it is of
			c.Resource = text(c.Name, strings.TrimRight(c.Resource.Version, "0123456789")+fmt.Sprint(w.rev))
		}
		changes = append(changes, c)
	}
	set.Update(Revision{1, w.rev}, changes)
	w.note()
}

func (w *world) names() []string {
	var names []string
	for range w.rng.IntN(4) {
		n := modelNames[w.rng.IntN(len(modelNames))]
		switch w.rng.IntN(6) {
		case 0:
			n = wildcard
		case 1:
			n = "own-" + n
		}
		names = append(names, n)
	}
	return names
}

func (w *world) step() {
	switch n := w.rng.IntN(100); {
	case n < 15:
		w.update()
	case n < 30:
		t := []Type{typeA, typeB, typeLast}[w.rng.IntN(3)]
		if w.rng.IntN(3) > 0 || !w.client.typ(t).opened {
			w.client.subscribe(t, w.names(), nil)
		} else {
			w.client.subscribe(t, nil, w.names())
		}
	case n < 33:
		w.stream.Close()
		w.stream = NewStream(w.options(), w.shared[w.place], w.own)
		w.woken = false
		w.client.reconnect()
	case n < 36:
		w.rev++
		w.place = 1 - w.place
		w.stream.SetLayers(w.shared[w.place], w.own)
		w.note()
	case n < 55:
		if len(w.client.toServer) > 0 {
			w.receive()
		}
	case n < 78:
		w.send()
	default:
		if len(w.client.toClient) > 0 {
			w.client.answer()
		}
	}
	w.check()
}

// quiesce runs until nothing moves.
func (w *world) quiesce() {
	for range 100_000 {
		moved := w.woken
		w.send()
		if len(w.client.toClient) > 0 {
			w.client.answer()
			moved = true
		}
		if len(w.client.toServer) > 0 {
			w.receive()
			moved = true
		}
		w.check()
		if !moved {
			return
		}
	}
	w.t.Fatal("the stream never came to rest")
}

// converged compares the client with the sets.
func (w *world) converged() {
	w.t.Helper()
	for t, m := range w.client.types {
		if !m.opened {
			continue
		}
		if !w.stream.Settled(t) {
			w.t.Fatalf("%s is not settled at rest", t)
		}
		for _, plain := range modelNames {
			for _, name := range []string{plain, "own-" + plain} {
				want, exists := w.shared[w.place].Get(t, name)
				if strings.HasPrefix(name, "own-") {
					want, exists = w.own.Get(t, name)
				}
				held, holds := m.held[name]
				state := w.stream.State(t, name)
				switch {
				case !m.follows(name):
					if holds || state.Phase != Unknown {
						w.t.Fatalf("%s %s: not followed, but held as %q, %v", t, name, held, state)
					}
				case !exists:
					if holds || (state.Phase != Unknown && state.Phase != Acked) {
						w.t.Fatalf("%s %s: does not exist, but held as %q, %v", t, name, held, state)
					}
				case strings.HasPrefix(want.Version, "bad"):
					if state.Phase != Nacked || state.Version != want.Version || state.Message != "it is bad" {
						w.t.Fatalf("%s %s: %q is bad, state %+v", t, name, want.Version, state)
					}
				case held != want.Version || state.Phase != Acked:
					w.t.Fatalf("%s %s: held %q, want %q, state %+v", t, name, held, want.Version, state)
				}
			}
		}
	}
}

// A client that subscribes, answers, refuses and reconnects at random ends with
// exactly what it follows, less what it refuses.
func TestClientConverges(t *testing.T) {
	seeds := [][2]uint64{{3, 2500}, {3, 2832}} // a client that begins to follow everything again
	for series, runs := range []int{1: 400, 2: 100} {
		if testing.Short() {
			runs /= 8
		}
		for seed := range runs {
			seeds = append(seeds, [2]uint64{uint64(series), uint64(seed)})
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("%d-%d", seed[0], seed[1]), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed[0], seed[1]))
			w := &world{
				t: t, rng: rng, own: NewSet(), shared: [2]*Set{NewSet(), NewSet()},
				client: &modelClient{rng: rng, types: map[Type]*modelType{}}, was: map[Type]map[string][]versionAt{},
			}
			w.stream = NewStream(w.options(), w.shared[0], w.own)
			for range 4 {
				for range 150 {
					w.step()
				}
				w.quiesce()
				w.converged()
			}
			// At rest, a stream of an all-wildcard client keeps no items but refusals.
			for _, s := range w.stream.subs {
				for name, it := range s.items {
					if !it.explicit && it.refusal == nil {
						t.Fatalf("%s %s: kept at rest: %+v", s.typ, name, it)
					}
				}
			}
			w.stream.Close()
			for _, s := range []*Set{w.shared[0], w.shared[1], w.own} {
				if err := verifySet(s); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
