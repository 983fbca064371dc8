package history

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/past"
	"fairlead.dev/internal/translate"
)

func hostVersion(name string, version int) *model.VirtualHost {
	owner := model.Object{Kind: "HTTPRoute", Namespace: "team", Name: name}
	return &model.VirtualHost{
		HostKey: model.HostKey{Listener: "http-80", Host: name},
		Routes: []model.Route{{
			Name: "HTTPRoute/team/" + name + "/rules/0/matches/0", Owner: owner,
			Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: model.GroupID(fmt.Sprint("team/app/", version)), Weight: 1}}},
		}},
	}
}

func groupVersion(version int) *model.BackendGroup {
	id := fmt.Sprint("team/app/", version)
	return &model.BackendGroup{ID: model.GroupID(id), Set: model.SetID(id)}
}

// newTestHistory began at a time, with nothing.
func newTestHistory(k Keeper, began time.Time) *History {
	h := New(k)
	h.Begin(began)
	h.Apply(translate.Changes{}, began, delta.Revision{})
	return h
}

// packing is a keeper that packs when a test says so.
type packing struct {
	packer past.Packer
	steps  []*Step
	bytes  int
}

func (k *packing) Begin(time.Time, delta.Revision, State) {}
func (k *packing) Add(c *Step)                            { k.steps = append(k.steps, c) }
func (k *packing) Look(c *Step) ([]byte, State)           { return c.Content() }
func (k *packing) Total() int                             { return k.bytes }

// catchUp packs the steps that wait.
func (k *packing) catchUp(t *testing.T) {
	t.Helper()
	for _, c := range k.steps {
		packed, err := c.Pack(&k.packer)
		if err != nil {
			t.Fatal(err)
		}
		c.SetPacked(packed)
		k.bytes += len(packed)
	}
	k.steps = nil
}

// mustFreeze freezes and expects that to work.
func (h *History) mustFreeze(t *testing.T, f Freeze) (Routing, translate.Pins) {
	t.Helper()
	out, pins, err := h.Freeze(f)
	if err != nil {
		t.Fatal(err)
	}
	return out, pins
}

type hostMap = map[model.HostKey]*model.VirtualHost

// Whatever changes while routing is frozen, turned back or thawed, and whatever of it is
// packed: machines have the state as of the Freeze, and in the end what is wanted. Every
// group that is used is pinned.
func TestHistoryHoldsTheStateOfItsTime(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1000, 0)
		k := &packing{}
		h := newTestHistory(k, now)
		wanted, machines := hostMap{}, hostMap{}
		states := []hostMap{{}} // by step
		times := []time.Time{now}
		asOf := -1 // step that holds; -1: not frozen
		check := func(what string) {
			t.Helper()
			want := wanted
			if asOf >= 0 {
				want = states[asOf]
			}
			if !maps.EqualFunc(machines, want, func(a, b *model.VirtualHost) bool { return reflect.DeepEqual(a, b) }) {
				t.Fatalf("seed %d, %s: machines have %v, want %v", seed, what, machines, want)
			}
			if got := h.Hosts(); !maps.EqualFunc(got, want, func(a, b *model.VirtualHost) bool { return reflect.DeepEqual(a, b) }) {
				t.Fatalf("seed %d, %s: the history says %v, want %v", seed, what, got, want)
			}
		}
		for step := range 40 {
			now = now.Add(time.Second)
			if random.IntN(4) == 0 {
				k.catchUp(t)
			}
			switch what := random.IntN(10); {
			case what < 6: // a change
				ch := translate.Changes{VirtualHosts: hostMap{}, Groups: map[model.GroupID]*model.BackendGroup{}}
				for range 1 + random.IntN(3) {
					name, version := string(rune('a'+random.IntN(4))), random.IntN(3)
					k := model.HostKey{Listener: "http-80", Host: name}
					if random.IntN(4) == 0 {
						ch.VirtualHosts[k] = nil
					} else {
						ch.VirtualHosts[k] = hostVersion(name, version)
						ch.Groups[groupVersion(version).ID] = groupVersion(version)
					}
				}
				wanted = maps.Clone(wanted)
				replace(wanted, ch.VirtualHosts)
				replace(machines, h.Apply(ch, now, delta.Revision{Epoch: 1, Number: uint64(step)}).VirtualHosts)
				states, times = append(states, wanted), append(times, now)
			case what < 8: // freeze, or turn back
				to := len(states) - 1
				if random.IntN(2) == 0 || asOf >= 0 {
					to = random.IntN(len(states))
				}
				out, pins := h.mustFreeze(t, Freeze{Since: now, AsOf: times[to]})
				replace(machines, out.hosts)
				asOf = to
				pinned := map[model.GroupID]bool{}
				for _, g := range pins.Groups {
					pinned[g.ID] = true
				}
				for _, host := range machines {
					for _, g := range host.Groups() {
						if !pinned[g] {
							t.Fatalf("seed %d: group %s is used and not pinned", seed, g)
						}
					}
				}
			case asOf >= 0:
				out := h.Thaw()
				replace(machines, out.hosts)
				asOf = -1
			}
			check(fmt.Sprint("step ", step))
		}
	}
}

func TestHistoryThatIsNotKnown(t *testing.T) {
	began := time.Unix(1000, 0)
	h := newTestHistory(nil, began)
	h.mustFreeze(t, Freeze{Since: began, AsOf: began.Add(-time.Second)})
	if !h.frozen.Lost || !h.Holds(nil, nil) {
		t.Error("a state from before the start is held to be known")
	}
}

func TestHistoryNamesOwnersAndForgetsTheOldest(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newTestHistory(nil, now)
	for i := range Limit + 10 {
		now = now.Add(time.Second)
		host := hostVersion("a", i)
		h.Apply(translate.Changes{VirtualHosts: hostMap{host.HostKey: host}}, now, delta.Revision{Epoch: 1, Number: uint64(i + 1)})
	}
	if len(h.log) != Limit || h.log[0].revision.Number != 11 {
		t.Errorf("%d steps from revision %d", len(h.log), h.log[0].revision.Number)
	}
	if got := h.log[0].owners; len(got) != 1 || got[0].String() != "HTTPRoute team/a" {
		t.Errorf("owners %v", got)
	}
	if h.letGo != 10 || !h.began.Equal(time.Unix(1010, 0)) {
		t.Errorf("%d are let go, the others begin at %s", h.letGo, h.began)
	}
	if _, pins := h.mustFreeze(t, Freeze{Since: now, AsOf: time.Unix(1005, 0)}); !h.frozen.Lost || len(pins.Groups) > 0 {
		t.Error("a state older than the oldest step is held to be known")
	}
}

// TestHistoryNamesSomethingForEachStep: also one that changes no route says what it is of.
func TestHistoryNamesSomethingForEachStep(t *testing.T) {
	host := func(k model.HostKey, policy *model.RoutePolicy, routes ...model.Route) hostMap {
		return hostMap{k: {HostKey: k, Policy: policy, Routes: routes}}
	}
	route := model.Route{Name: "r", Owner: model.Object{Kind: "HTTPRoute", Namespace: "team", Name: "a"}}
	at := model.HostKey{Listener: "http-80", Host: "www.example"}
	for _, c := range []struct {
		name          string
		before, after translate.Changes
		want          string
	}{
		{
			name:  "a shared listener",
			after: translate.Changes{Listeners: map[model.ListenerID]*model.Listener{"http-80": {ID: "http-80", Port: 80}}}, want: "listener http-80",
		},
		{
			name:   "a Gateway's listener goes",
			before: translate.Changes{Listeners: map[model.ListenerID]*model.Listener{"http-80_team_web": {Port: 80}}},
			after:  translate.Changes{Listeners: map[model.ListenerID]*model.Listener{"http-80_team_web": nil}}, want: "Gateway team/web",
		},
		{
			name:   "a policy of a host",
			before: translate.Changes{VirtualHosts: host(at, nil, route)}, after: translate.Changes{VirtualHosts: host(at, &model.RoutePolicy{}, route)}, want: "HTTPRoute team/a",
		},
		{name: "a host without routes", after: translate.Changes{VirtualHosts: host(at, nil)}, want: "listener http-80"},
		{
			name:   "machines that serve",
			before: translate.Changes{Views: map[model.ViewID]*model.View{"v": {Listeners: []model.ListenerID{"http-80"}}}},
			after:  translate.Changes{Views: map[model.ViewID]*model.View{"v": {Listeners: []model.ListenerID{"http-80", "http-81_team_web"}}}}, want: "Gateway team/web",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			h := New(nil)
			h.Begin(now)
			h.Apply(c.before, now, delta.Revision{})
			h.Apply(c.after, now.Add(time.Second), delta.Revision{Epoch: 1, Number: 1})
			if len(h.log) != 1 || len(h.log[0].owners) != 1 || h.log[0].owners[0].String() != c.want {
				t.Errorf("its steps are %+v, want one of %s", h.log, c.want)
			}
		})
	}
}

// A Gateway whose server name is held back shows it, at the port that has the name and
// at no other; so does one that would come into its place.
func TestHistoryHoldsServerNames(t *testing.T) {
	now := time.Unix(1000, 0)
	h := New(nil)
	h.Begin(now)
	owner, other := model.Object{Kind: "Gateway", Namespace: "team", Name: "a"}, model.Object{Kind: "Gateway", Namespace: "team", Name: "b"}
	k := model.HostKey{Listener: "https-443", Host: "www.example"}
	name := func(o model.Object, version model.TLSVersion) translate.Changes {
		return translate.Changes{TLSHosts: map[model.HostKey]*model.TLSHost{k: {HostKey: k, Owner: o, MinVersion: version}}}
	}
	holds := func(o model.Object, listener model.ListenerID) bool {
		return h.HeldText(o, nil, []model.ListenerID{listener}) != ""
	}
	h.Apply(name(owner, "1.2"), now, delta.Revision{})
	h.mustFreeze(t, Freeze{Since: now, AsOf: now})
	if holds(owner, k.Listener) {
		t.Error("nothing is held back yet")
	}
	h.Apply(name(owner, "1.3"), now, delta.Revision{})
	if !holds(owner, k.Listener) || holds(owner, "https-8443") || holds(other, k.Listener) {
		t.Error("the Gateway whose name is held back is not the one that shows it")
	}
	h.Apply(name(other, "1.3"), now, delta.Revision{})
	if !holds(owner, k.Listener) || !holds(other, k.Listener) {
		t.Error("who had the name and who would have it do not both show that it is held back")
	}
	h.Apply(name(owner, "1.2"), now, delta.Revision{})
	if holds(owner, k.Listener) || holds(other, k.Listener) {
		t.Error("a change that was taken back is still held")
	}
	h.Apply(name(other, "1.3"), now, delta.Revision{})
	h.Thaw()
	if holds(other, k.Listener) {
		t.Error("something is held back though nothing is frozen")
	}
}

// TestViewsOfAFreeze: which machines have a pool, and where its VIPs lead, is not held. While routing is frozen
// a view has what it had and what it is to have, so that a listener whose VIP has another pool meanwhile is
// at the machines of both.
func TestViewsOfAFreeze(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newTestHistory(&packing{}, now)
	type views = map[model.ViewID]*model.View
	machines := map[model.ViewID]string{}
	publish := func(changes views) {
		for id, v := range changes {
			if delete(machines, id); v != nil {
				machines[id] = fmt.Sprint(v.Listeners)
			}
		}
	}
	change := func(changes views) {
		now = now.Add(time.Second)
		publish(h.Apply(translate.Changes{Views: changes}, now, delta.Revision{}).Views)
	}
	expect := func(when string, want map[model.ViewID]string) {
		t.Helper()
		if !maps.Equal(machines, want) {
			t.Errorf("%s: machines have %v, want %v", when, machines, want)
		}
	}
	view := func(id model.ViewID, listeners ...model.ListenerID) *model.View {
		return &model.View{ID: id, Listeners: listeners}
	}
	change(views{"pool:a": view("pool:a", "http-80", "https-443")})
	before := now
	change(views{"pool:a": nil, "pool:b": view("pool:b", "http-80")})
	now = now.Add(time.Second)
	out, _ := h.mustFreeze(t, Freeze{Since: now, AsOf: before})
	publish(out.views)
	expect("turned back", map[model.ViewID]string{"pool:a": "[http-80 https-443]", "pool:b": "[http-80]"})
	change(views{"pool:b": view("pool:b", "http-80", "http-81"), "pool:c": view("pool:c", "http-80")})
	expect("frozen", map[model.ViewID]string{"pool:a": "[http-80 https-443]", "pool:b": "[http-80 http-81]", "pool:c": "[http-80]"})
	change(views{"pool:a": view("pool:a", "http-82"), "pool:c": nil})
	expect("frozen yet", map[model.ViewID]string{"pool:a": "[http-80 http-82 https-443]", "pool:b": "[http-80 http-81]"})
	thawed := h.Thaw()
	publish(thawed.views)
	expect("thawed", map[model.ViewID]string{"pool:a": "[http-82]", "pool:b": "[http-80 http-81]"})
}

// Values large and all different are bounded in bytes.
func TestHistoryIsBoundedInBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 4))
	k := &packing{}
	now := time.Unix(1000, 0)
	h := newTestHistory(k, now)
	noise := make([]byte, 600<<10)
	for i := range 120 {
		for j := range noise {
			noise[j] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[random.IntN(64)]
		}
		host := hostVersion("a", 1)
		host.Routes[0].Respond = &model.Respond{Body: string(noise)}
		now = now.Add(time.Second)
		h.Apply(translate.Changes{VirtualHosts: hostMap{host.HostKey: host}}, now, delta.Revision{Epoch: 1, Number: uint64(i)})
		k.catchUp(t)
	}
	size := 0
	for _, c := range h.log {
		size += len(c.packed)
	}
	if size > limitBytes+limitBytes/16 || size < limitBytes/2 || h.letGo == 0 {
		t.Errorf("%d steps take %d bytes, %d let go", len(h.log), size, h.letGo)
	}
}

// A field that this program does not know is an error: half of a value is not the value.
func TestUnknownFieldsAreRefused(t *testing.T) {
	key := packedKey(packedView, "v")
	if err := newPicture().unpack(key, []byte(`{"id":"v","listeners":[]}`)); err != nil {
		t.Error(err)
	}
	if err := newPicture().unpack(key, []byte(`{"id":"v","listeners":[],"later":1}`)); err == nil {
		t.Error("half of a value is taken for all of it")
	}
}

// No value that is kept has a secret in it, or anything that would be lost on the way.
func TestHistoryHasNoSecrets(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type, string)
	look = func(of reflect.Type, path string) {
		if seen[of] {
			return
		}
		seen[of] = true
		if of == reflect.TypeFor[model.Redacted]() || of == reflect.TypeFor[model.Certificate]() {
			t.Errorf("%s is a secret", path)
		}
		if strings.HasPrefix(of.PkgPath(), "net/netip") || of == reflect.TypeFor[time.Time]() {
			return // they write themselves
		}
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			look(of.Elem(), path)
		case reflect.Map:
			look(of.Key(), path)
			look(of.Elem(), path)
		case reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("%s cannot be read again", path)
		case reflect.Struct:
			for i := range of.NumField() {
				f := of.Field(i)
				if !f.IsExported() || f.Tag.Get("json") == "-" {
					t.Errorf("%s.%s is not written", path, f.Name)
				}
				look(f.Type, path+"."+f.Name)
			}
		}
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[model.Listener](), reflect.TypeFor[model.VirtualHost](), reflect.TypeFor[model.TLSHost](), reflect.TypeFor[model.View](), reflect.TypeFor[model.BackendGroup](),
	} {
		look(of, of.String())
	}
}

// TestThawDeletesWhatIsGone holds that certificates which were deleted during a Freeze go when it ends, also where the
// translation has nothing to say then, and that what it says goes first.
func TestThawDeletesWhatIsGone(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, again := range []bool{false, true} {
		h := newTestHistory(nil, now)
		h.Apply(translate.Changes{
			Certificates: map[model.CertificateID]*model.Certificate{"team/tls": {}},
			Authorities:  map[model.AuthorityID]*model.Authority{"team/ca": {}},
		}, now, delta.Revision{})
		if _, _, err := h.Freeze(Freeze{AsOf: now, Since: now}); err != nil {
			t.Fatal(err)
		}
		held := h.Apply(translate.Changes{
			Certificates: map[model.CertificateID]*model.Certificate{"team/tls": nil},
			Authorities:  map[model.AuthorityID]*model.Authority{"team/ca": nil},
		}, now, delta.Revision{})
		if len(held.Certificates)+len(held.Authorities) > 0 {
			t.Fatalf("a Freeze lets through %v and %v", held.Certificates, held.Authorities)
		}
		var ch translate.Changes
		if again {
			ch.Certificates = map[model.CertificateID]*model.Certificate{"team/tls": {}}
		}
		h.Thaw().Under(&ch)
		certificate, said := ch.Certificates["team/tls"]
		if !said || (certificate != nil) != again {
			t.Errorf("created again: %v: certificates %v", again, ch.Certificates)
		}
		if authority, said := ch.Authorities["team/ca"]; !said || authority != nil {
			t.Errorf("authorities %v", ch.Authorities)
		}
	}
}
