package translate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// recordAll writes the status of every pool as a plane does, and says whether one was
// another before.
func (w *world) recordAll() bool {
	var keys []snapshot.Key
	for n, pool := range w.snapshot.AddressPools {
		status := w.tr.result().Statuses[input.Object(snapshot.KindAddressPool, n)].AddressPool
		if reflect.DeepEqual(*status, pool.Status) {
			continue
		}
		pool = pool.DeepCopy()
		pool.Status = *status.DeepCopy()
		k := snapshot.Key{Kind: snapshot.KindAddressPool, Name: n}
		w.set(pool, k)
		keys = append(keys, k)
	}
	w.apply(keys)
	return len(keys) > 0
}

// checkFence holds what is used against what is recorded.
func (w *world) checkFence() {
	w.t.Helper()
	checkFence(w.t, w.snapshot, w.tr)
}

func checkFence(t testing.TB, s *snapshot.Snapshot, tr *Translator) {
	t.Helper()
	result := tr.result()
	for address, a := range result.Assignments {
		pool := s.AddressPools[snapshot.Name{Name: a.Pool}]
		if pool == nil || !slices.ContainsFunc(pool.Status.Assignments, func(r v1alpha1.Assignment) bool {
			return r.Address == address.String() && r.Kind == a.Owner.Kind && r.Namespace == a.Owner.Namespace && r.Name == a.Owner.Name
		}) {
			t.Fatalf("%s is used by %s without a record", address, a.Owner)
		}
		for _, machine := range a.Machines {
			if result.VIPs[model.VIPKey{Machine: machine, Address: address}] == nil {
				t.Fatalf("%s is not at machine %s", address, machine)
			}
		}
	}
	for k, v := range result.VIPs {
		if a := result.Assignments[v.Address]; a == nil || !slices.Contains(a.Machines, k.Machine) {
			t.Fatalf("%s is at machine %s and assigned to nobody there", v.Address, k.Machine)
		}
	}
	owners := map[string]string{}
	for o, status := range result.Statuses {
		if status.AddressPool == nil {
			continue
		}
		for _, a := range status.AddressPool.Assignments {
			if owners[a.Address] != "" {
				t.Fatalf("%s is assigned in %s and in %s", a.Address, owners[a.Address], o.Name)
			}
			owners[a.Address] = o.Name
		}
	}
	for o, status := range result.Statuses {
		if status.Gateway == nil || tr.vip.Outcomes.Get(tr.graph.Peek(), o) == nil {
			continue
		}
		for _, shown := range status.Gateway.Addresses {
			if a := result.Assignments[netip.MustParseAddr(shown.Value)]; a == nil || a.Owner != o {
				t.Fatalf("%s shows %s, which is not its own", o, shown.Value)
			}
		}
	}
}

// TestRecordsConverge records statuses of any world, among them such as somebody's hand
// made: after two writes of each pool there is nothing to write.
func TestRecordsConverge(t *testing.T) {
	assigned := 0
	for seed := range uint64(60) {
		w := newWorld(t, seed, "")
		for range 40 {
			w.change(5)
			w.checkFence()
			for round := 0; w.recordAll(); round++ {
				w.checkFence()
				if round == 2 {
					w.t.Fatalf("seed %d: the third record differs from the second", seed)
				}
			}
			w.check()
			for _, p := range w.snapshot.AddressPools {
				assigned += len(p.Status.Assignments)
			}
		}
	}
	if assigned < 1000 {
		t.Errorf("%d assignments: the worlds say too little", assigned)
	}
}

// TestAssignmentsStay adds to worlds what may want addresses, or give them, or have them:
// what is in use stays where it is.
func TestAssignmentsStay(t *testing.T) {
	stayed := 0
	for seed := range uint64(60) {
		w := newWorld(t, seed, "")
		for range 20 {
			w.change(8)
		}
		for w.recordAll() {
		}
		for i := range 20 {
			before := maps.Clone(w.tr.result().Assignments)
			k := w.g.key()
			k.Name.Name = fmt.Sprintf("new-%d", i)
			switch k.Kind {
			case snapshot.KindAddressPool, snapshot.KindGateway, snapshot.KindService, snapshot.KindMachine, snapshot.KindIngressRoute, snapshot.KindBGPPeer:
			default:
				continue
			}
			o := w.g.object(k)
			o.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(w.g.IntN(4)), 0)))
			if p, is := o.(*v1alpha1.AddressPool); is {
				p.Status = v1alpha1.AddressPoolStatus{}
			}
			w.set(o, k)
			w.apply([]snapshot.Key{k})
			for range 2 {
				for address, a := range before {
					now := w.tr.result().Assignments[address]
					if now == nil || now.Owner != a.Owner || now.Pool != a.Pool {
						t.Fatalf("seed %d: %s of %s went to %v when %s came", seed, address, a.Owner, now, k)
					}
					stayed++
				}
				w.recordAll()
			}
		}
	}
	if stayed < 1000 {
		t.Errorf("%d assignments: the worlds say too little", stayed)
	}
}

// plane is one of several that read one API, each as late as it likes.
type plane struct {
	snapshot *snapshot.Snapshot
	tr       *Translator
	versions map[snapshot.Key]int
}

// TestOneOwnerAtATime lets planes that know little of each other write to one API,
// where a status is written over the version that was read or not at all. At no moment
// does the API record two owners of an address, and no plane uses an address but by a
// record that it read.
func TestOneOwnerAtATime(t *testing.T) {
	recorded := 0
	for seed := range uint64(40) {
		g := generator{Rand: rand.New(rand.NewPCG(seed, 11))}
		api, versions := map[snapshot.Key]metav1.Object{}, map[snapshot.Key]int{}
		planes := []*plane{newPlane(), newPlane(), newPlane()}
		version := 0
		store := func(k snapshot.Key, o metav1.Object) {
			version++
			versions[k] = version
			api[k] = o
		}
		class := &gatewayv1.GatewayClass{}
		class.Name, class.Spec.ControllerName = "one", input.ControllerName
		store(snapshot.Key{Kind: snapshot.KindGatewayClass, Name: snapshot.Name{Name: "one"}}, class)
		for range 400 {
			p := planes[g.IntN(len(planes))]
			switch g.IntN(10) {
			case 0, 1: // Somebody changes a Gateway.
				o := &gatewayv1.Gateway{}
				o.Name, o.Namespace = pick(g, "one", "two", "three", "four", "five"), "a"
				o.CreationTimestamp = metav1.NewTime(time.Unix(int64(g.IntN(4)), 0))
				g.gateway(o)
				o.Spec.GatewayClassName = "one"
				o.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}
				k := snapshot.Key{Kind: snapshot.KindGateway, Name: snapshot.Name{Namespace: "a", Name: o.Name}}
				if g.chance(30) {
					store(k, nil)
				} else {
					store(k, o)
				}
			case 2: // Somebody changes a pool; pools have nothing in common.
				name := pick(g, "one", "two", "three")
				k := snapshot.Key{Kind: snapshot.KindAddressPool, Name: snapshot.Name{Name: name}}
				o := &v1alpha1.AddressPool{}
				if old, is := api[k].(*v1alpha1.AddressPool); is {
					o = old.DeepCopy()
				}
				o.Name, o.CreationTimestamp = name, metav1.NewTime(time.Unix(1, 0))
				third := map[string]int{"one": 0, "two": 4, "three": 8}[name]
				o.Spec.Addresses = []string{fmt.Sprintf("192.0.2.%d-192.0.2.%d", third, third+g.IntN(3))}
				o.Spec.Assign = pick(g, v1alpha1.AssignAutomatic, v1alpha1.AssignAutomatic, v1alpha1.AssignOnRequest)
				store(k, o)
			case 3, 4, 5: // A plane writes a status; its answer may be lost.
				n := snapshot.Name{Name: pick(g, "one", "two", "three")}
				k := snapshot.Key{Kind: snapshot.KindAddressPool, Name: n}
				seen := p.snapshot.AddressPools[n]
				if seen == nil || p.versions[k] != versions[k] {
					continue // a conflict
				}
				o := seen.DeepCopy()
				o.Status = *p.tr.result().Statuses[input.Object(snapshot.KindAddressPool, n)].AddressPool.DeepCopy()
				store(k, o)
			default: // A plane hears of a change, not always the first.
				keys := slices.SortedFunc(maps.Keys(api), snapshot.Key.Compare)
				k := keys[g.IntN(len(keys))]
				p.hear(t, k, api[k], versions[k])
			}
			owners := map[string]v1alpha1.Assignment{}
			for _, o := range api {
				pool, is := o.(*v1alpha1.AddressPool)
				if !is {
					continue
				}
				for _, a := range pool.Status.Assignments {
					if other, taken := owners[a.Address]; taken {
						t.Fatalf("seed %d: %s is recorded for %s and %s", seed, a.Address, other.Name, a.Name)
					}
					owners[a.Address] = a
					recorded++
				}
			}
			for _, p := range planes {
				checkFence(t, p.snapshot, p.tr)
			}
		}
	}
	if recorded < 1000 {
		t.Errorf("%d records: the planes did too little", recorded)
	}
}

func newPlane() *plane {
	return &plane{snapshot: snapshot.New(), tr: New(input.Config{}), versions: map[snapshot.Key]int{}}
}

func (p *plane) hear(t *testing.T, k snapshot.Key, o metav1.Object, version int) {
	if o == nil || reflect.ValueOf(o).IsNil() {
		p.snapshot.Delete(k)
	} else if _, err := p.snapshot.Set(o); err != nil {
		t.Fatal(err)
	}
	p.versions[k] = version
	p.tr.Apply(p.snapshot, []snapshot.Key{k})
}
