package health

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
)

// presumedAt are the checks that nobody asked for of backends of one namespace.
func presumedAt(owner string, backends ...netip.AddrPort) map[netip.AddrPort]Wanted {
	return tcpChecks(owner, *model.PresumedCheck(), backends...)
}

// TestOneNamespacesFloodIsItsOwn holds that a Service with 100 ports and 2,000 endpoints takes
// nobody else's default checks, that machines are sent no more than they have slots for, and
// that people are told.
func TestOneNamespacesFloodIsItsOwn(t *testing.T) {
	h := New()
	machines := []string{"a", "b", "c"}
	h.Members(machines)
	var sent [3]int // bytes
	send := func() {
		told, err := h.Flush()
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range machines {
			for _, c := range told[m] {
				if c.Resource != nil {
					sent[i] += len(c.Name) + len(c.Resource.Version) + proto.Size(c.Resource.Body)
				}
			}
		}
	}
	user := func(i int) User { return User{Frontend: model.FrontendKey{Port: uint16(i)}} }
	for port := range 100 {
		var backends []netip.AddrPort
		for i := range 2000 {
			backends = append(backends, netip.AddrPortFrom(serverAt(i).Addr(), uint16(1000+port)))
		}
		h.Use(user(port), presumedAt("flood", backends...))
	}
	h.Judge()
	send()
	var small []netip.AddrPort
	for i := range 50 {
		small = append(small, netip.AddrPortFrom(serverAt(3000+i).Addr(), 80))
	}
	h.Use(user(200), presumedAt("small", small...))
	stranger := netip.AddrPortFrom(serverAt(0).Addr(), 1099) // of the flood, and named by small's Service, too
	h.Use(user(201), presumedAt("small", stranger))
	asked := tcpChecks("flood", model.HealthCheck{}, serverAt(1))
	h.Use(user(202), asked)
	h.Judge()
	send()
	for _, b := range append(small, stranger) {
		u := user(200)
		if b == stranger {
			u = user(201)
		}
		if health, _ := h.Of(u, b); health != model.HealthUnknown {
			t.Fatalf("%s of the small namespace is %q beside a flood, want that it is checked", b, health)
		}
	}
	if _, id := h.Of(user(202), serverAt(1)); id == "" {
		t.Error("a check that a policy asks for stands behind those that nobody asked for")
	}
	for i, m := range machines {
		n := 0
		for _, c := range h.checks {
			if c.Presumed && slices.Contains(c.checkers, m) {
				n++
			}
		}
		if n > rationedChecks || n < rationedChecks-1 {
			t.Errorf("%s has %d checks that nobody asked for, want %d", m, n, rationedChecks)
		}
		t.Logf("%s: %d checks, %d bytes sent in all", m, n, sent[i])
		if sent[i] > 4<<20 {
			t.Errorf("%s was sent %d bytes", m, sent[i])
		}
	}
	problems := h.Problems()
	if len(problems) != 1 || problems[0].Subject != "Namespace flood" || !strings.Contains(problems[0].Message, "190050 of 200000 backends are not checked, such as 10.0.") {
		t.Errorf("the problems are %+v", problems)
	}
	// When the flood ends, nothing is left of it.
	for port := range 100 {
		h.Use(user(port), nil)
	}
	h.Judge()
	if problems := h.Problems(); len(problems) != 0 || len(h.checks) != 52 {
		t.Errorf("after the flood there are %d checks and the problems %+v", len(h.checks), problems)
	}
}

// TestRationIsFair does things at random and compares with what is fair: each namespace has
// as many slots as it wants or as many as anybody, none stays empty that is wanted, and
// machines check what has a slot, and know for whom.
func TestRationIsFair(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		h, held := New(), told{}
		h.ration.perMachine = 12
		machines := []string{"a", "b", "c"}
		h.Members(machines)
		users := map[User]map[netip.AddrPort]Wanted{}
		for step := range 200 {
			if r.IntN(8) == 0 {
				machines = []string{"a", "b", "c", "d", "e", "f"}[:3+r.IntN(4)]
				h.Members(machines)
			} else {
				u := User{Frontend: model.FrontendKey{Port: uint16(r.IntN(12))}}
				var backends []netip.AddrPort
				for range r.IntN(8) {
					backends = append(backends, serverAt(r.IntN(40)))
				}
				users[u] = presumedAt(fmt.Sprint("n", r.IntN(4)), backends...)
				h.Use(u, users[u])
			}
			marked := map[User]map[netip.AddrPort]string{}
			for u, checks := range users {
				marked[u] = map[netip.AddrPort]string{}
				for b := range checks {
					_, marked[u][b] = h.Of(u, b)
				}
			}
			changed := h.Judge()
			held.receive(t, h)
			for u, checks := range users {
				for b := range checks {
					if _, id := h.Of(u, b); id != marked[u][b] && !changed[u] {
						t.Fatalf("seed %d, step %d: whether %s is checked changed, and %v is not told", seed, step, b, u)
					}
				}
			}
			wants := map[string]map[string]bool{}
			for _, checks := range users {
				for _, c := range checks {
					if wants[c.Owner] == nil {
						wants[c.Owner] = map[string]bool{}
					}
					wants[c.Owner][c.ID] = true
				}
			}
			var numbers []int
			for _, ids := range wants {
				numbers = append(numbers, len(ids))
			}
			fair := model.FairShare(12*len(machines)/3, numbers)
			on := map[string][]string{}
			for namespace, ids := range wants {
				n := 0
				for id := range ids {
					if c := h.checks[id]; c.rationed[namespace] {
						on[id] = append(on[id], namespace)
						n++
					}
				}
				if n != min(len(ids), fair) {
					t.Fatalf("seed %d, step %d: %s has %d slots for %d checks, want %d", seed, step, namespace, n, len(ids), min(len(ids), fair))
				}
			}
			for m, checks := range held {
				for id, c := range checks {
					if slices.Sort(on[id]); len(on[id]) == 0 || !slices.Equal(c.Namespaces, on[id]) {
						t.Fatalf("seed %d, step %d: %s checks %s for %v, want for %v", seed, step, m, id, c.Namespaces, on[id])
					}
				}
			}
			for id := range on {
				if n := len(h.checks[id].checkers); n != 3 {
					t.Fatalf("seed %d, step %d: %s is checked by %d machines", seed, step, id, n)
				}
			}
		}
	}
}
