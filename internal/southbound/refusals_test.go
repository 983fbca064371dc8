package southbound

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// refuser is a machine that refuses everything but checkpoints.
type refuser struct {
	t      *testing.T
	views  *Views
	feed   *feed
	server *Server
	who    *session
	rev    uint64
	says   string // of each that it refuses
}

func newRefuser(t *testing.T, names int) *refuser {
	r := &refuser{t: t, says: "no", views: NewViews(), who: &session{caller: caller{Identity: Identity{Machine: "edge-1"}}}}
	m := &machine{name: "edge-1"}
	m.sessions[discovery] = r.who
	r.server = &Server{config: Config{Views: r.views, Now: time.Now, TTL: time.Minute}, machines: map[string]*machine{"edge-1": m}}
	texts := make([]string, names)
	for i := range texts {
		texts[i] = fmt.Sprintf("n%06d=1", i)
	}
	r.publish(Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, texts...)}, Placement: place("edge-1", "pool")})
	r.feed = r.views.open("edge-1", delta.Revision{})
	r.receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA)})
	r.receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(checkpointType)})
	return r
}

func (r *refuser) publish(u Update) {
	r.t.Helper()
	r.rev++
	if err := r.views.Publish(delta.Revision{Epoch: 1, Number: r.rev}, u); err != nil {
		r.t.Fatal(err)
	}
}

func (r *refuser) receive(req *discoveryv3.DeltaDiscoveryRequest) {
	r.t.Helper()
	o, err := r.feed.receive(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.server.progress(r.who, o)
}

// answer refuses all that there is, and counts the messages.
func (r *refuser) answer() (messages int) {
	r.t.Helper()
	for {
		resp, o := r.feed.next(1)
		r.server.progress(r.who, o)
		if resp == nil {
			return messages
		}
		messages++
		req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
		if resp.GetTypeUrl() == string(typeA) {
			req.ErrorDetail = &rpcstatus.Status{Message: r.says}
		}
		r.receive(req)
	}
}

func (r *refuser) problems() int {
	r.t.Helper()
	state := r.server.machines["edge-1"].listed().all()
	if !slices.IsSortedFunc(state, Problem.compare) {
		r.t.Fatal("the problems are not sorted")
	}
	return len(state)
}

// A machine that refuses thousands of names costs other machines' streams nothing: no message
// of it sorts or copies them under the lock of all. All of them are listed for the status.
func TestManyRefusalsCostNoMessage(t *testing.T) {
	const n = 8000
	r := newRefuser(t, n)
	messages := r.answer()
	refusals := r.feed.refusals
	if messages < 2*n {
		t.Fatalf("%d messages, want each name refused alone", messages)
	}
	if refusals.work > 2*n {
		t.Errorf("%d messages sort or copy %d refusals that nobody reads", messages, refusals.work)
	}
	if got := r.problems(); got != n {
		t.Fatalf("%d problems listed of %d", got, n)
	}
	refusals.work = 0
	for range 100 { // nothing new, in either direction
		r.receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA)})
		r.answer()
		r.problems()
	}
	for i := range 100 { // one refusal ends, another begins
		r.publish(Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, fmt.Sprintf("n%06d=%d", i, 2+i))}})
		r.answer()
	}
	if refusals.work > 0 {
		t.Errorf("messages sort or copy %d refusals", refusals.work)
	}
	if got := r.problems(); got != n || refusals.work > 2*n {
		t.Errorf("%d problems of %d, by %d refusals sorted or copied", got, n, refusals.work)
	}
	r.publish(Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "n000000-")}})
	if got := r.problems(); got != n-1 {
		t.Errorf("%d problems, want one fewer than %d", got, n)
	}
}

// What is put aside while nobody reads is bounded, and bounding it costs little a change.
func TestRefusalsThatNobodyReadsAreBounded(t *testing.T) {
	const n = 20_000
	var r refusals
	most := 0
	for i := range n {
		e := delta.Event{Type: typeA, Name: fmt.Sprint(i), Refused: true}
		r.note(e)
		e.Refused = false // the machine drops the name
		r.note(e)
		r.trim()
		most = max(most, len(r.fresh))
	}
	if most > freshRefusals+1 || r.work > 2*n {
		t.Errorf("%d refusals put aside, %d sorted or copied for %d", most, r.work, n)
	}
	for i := 0; i < n && (i == 0 || len(r.fresh) > 0); i++ {
		r.note(delta.Event{Type: typeA, Name: fmt.Sprint(i), Refused: true})
		r.trim()
		most = i + 1
	}
	if got := len(r.all(nil)); got != most { // all of them were put into the list already
		t.Errorf("%d refusals listed, want %d", got, most)
	}
}

// However changes, reads and reports come, what is read is what there is.
func TestRefusalsAreListed(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(1, seed))
		var r refusals
		want := map[refusalKey]Problem{}
		var reported []Problem
		for range 5000 {
			switch n := rng.IntN(1000); {
			case n < 4:
				all := slices.Concat(slices.Collect(maps.Values(want)), reported)
				slices.SortFunc(all, Problem.compare)
				if got := r.all(reported); !slices.Equal(got, all) {
					t.Fatalf("seed %d: listed %v, want %v", seed, got, all)
				}
			case n < 6:
				reported = nil
				for range rng.IntN(3) {
					reported = append(reported, Problem{Type: typeA, Name: fmt.Sprint(rng.IntN(9)), Kind: agentv1.Problem_KIND_WAITING})
				}
			default:
				e := delta.Event{Type: []delta.Type{typeA, typeB}[rng.IntN(2)], Name: fmt.Sprint(rng.IntN(1500)), Version: fmt.Sprint(n), Refused: n%2 == 0}
				r.note(e)
				key := refusalKey{e.Type, e.Name}
				if delete(want, key); e.Refused {
					want[key] = Problem{Kind: agentv1.Problem_KIND_REFUSED, Type: e.Type, Name: e.Name, Version: e.Version}
				}
				r.trim()
			}
		}
	}
}

// The receiver and the sender of a stream tell outcomes side by side: one that is late does
// not take back what a newer one said.
func TestALateOutcomeTakesNothingBack(t *testing.T) {
	r := newRefuser(t, 1)
	_, late := r.feed.next(1)
	r.receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA), ResponseNonce: "1", ErrorDetail: &rpcstatus.Status{Message: r.says}})
	r.answer()
	before, _ := r.server.Machine("edge-1")
	r.server.progress(r.who, late)
	after, _ := r.server.Machine("edge-1")
	if before.Delivered.Number != 1 || after.Delivered != before.Delivered || len(before.Problems) != 1 || len(after.Problems) != 1 {
		t.Errorf("delivered %s with %d problems, then %s with %d", before.Delivered, len(before.Problems), after.Delivered, len(after.Problems))
	}
}

// TestRefusalsSayLittle holds that the messages of thousands of refusals take no more of the plane's memory
// than a few long ones, and that there is room again when they end.
func TestRefusalsSayLittle(t *testing.T) {
	const names = 4096
	r := newRefuser(t, names)
	r.says = strings.Repeat("x", 4*maxMessage)
	r.answer()
	said := func() (n int) {
		for _, p := range r.feed.refusals.all(nil) {
			n += len(p.Message)
		}
		return n
	}
	if n := len(r.feed.refusals.all(nil)); n != names {
		t.Fatalf("%d are refused", n)
	}
	if n := said(); n > maxTold+names*shortMessage || n < maxTold {
		t.Errorf("%d refusals say %d bytes", names, n)
	}
	if state := r.feed.stream.State(typeA, "n004095"); len(state.Message) > shortMessage {
		t.Errorf("the stream keeps %d bytes of one of the last", len(state.Message))
	}
	// What is refused changes, and is refused in fewer words.
	for i := range names {
		r.publish(Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, fmt.Sprintf("n%06d=2", i))}})
	}
	r.says = "no"
	r.answer()
	if n := said(); n != names*len("no") || r.feed.refusals.told != n || r.feed.refusals.room() != maxMessage {
		t.Errorf("%d bytes, counted as %d, with room for %d", n, r.feed.refusals.told, r.feed.refusals.room())
	}
}
