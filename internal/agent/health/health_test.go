package health

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// finds is what a machine itself finds, by check.
type finds struct {
	results map[string]model.Health
	first   bool // it has just begun to ask
	alone   bool // there is no plane
}

func (f *finds) own(check string) Finding {
	return Finding{Health: f.results[check], First: f.first && f.results[check] == model.Unhealthy, Alone: f.alone}
}

// assigned is a load assignment of the plane: "a=healthy b=unknown c=draining". All but
// those that drain are checked by their names; "presumed" before them: nobody asked for that. "+a" is a backup.
func assigned(t *testing.T, text string) delta.Change {
	t.Helper()
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "s", Endpoints: []*endpointv3.LocalityLbEndpoints{{}}}
	words := strings.Fields(text)
	presumed := words[0] == "presumed"
	if presumed {
		words = words[1:]
	}
	for i, word := range words {
		name, status, _ := strings.Cut(word, "=")
		name, backup := strings.CutPrefix(name, "+")
		e := &endpointv3.LbEndpoint{
			HealthStatus: corev3.HealthStatus(corev3.HealthStatus_value[strings.ToUpper(status)]),
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: fmt.Sprintf("10.0.0.%d", name[0]), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80}},
			}}}},
		}
		if status != "draining" {
			e.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"fairlead.dev/health": {
				Fields: map[string]*structpb.Value{"check": structpb.NewStringValue(name), "presumed": structpb.NewBoolValue(presumed)},
			}}}
		}
		if i == 1 {
			m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: "b"}})
		}
		if l := m.GetEndpoints()[len(m.GetEndpoints())-1]; backup && l.GetPriority() == 0 {
			m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{Priority: 1})
		}
		l := m.GetEndpoints()[len(m.GetEndpoints())-1]
		l.LbEndpoints = append(l.LbEndpoints, e)
	}
	return delta.Change{Type: agentv1.EndpointType, Name: "s", Resource: gatetest.Pack(t, "s", m)}
}

// statusesOf is what the proxy is told: "a=healthy b=unhealthy".
func statusesOf(t *testing.T, r *delta.Resource) string {
	t.Helper()
	var m endpointv3.ClusterLoadAssignment
	if err := read(r, &m); err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if e.GetMetadata() != nil {
				t.Error("the proxy is sent metadata")
			}
			a := netip.MustParseAddr(e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()).As4()
			words = append(words, fmt.Sprintf("%c=%s", a[3], strings.ToLower(e.GetHealthStatus().String())))
		}
	}
	return strings.Join(words, " ")
}

func TestHealthOfAssignments(t *testing.T) {
	type step struct {
		plane string // what it sends; empty: it sends nothing
		own   map[string]model.Health
		first bool
		alone bool
		want  string
	}
	well, ill := model.Healthy, model.Unhealthy
	for name, steps := range map[string][]step{
		"the plane's word": {{plane: "a=healthy b=unhealthy c=draining", own: map[string]model.Health{"a": ill, "b": well}, want: "a=healthy b=unhealthy c=draining"}},
		"presumed: who was never answered serves beside others": {
			{plane: "presumed a=healthy b=unknown", want: "a=healthy b=healthy"},
			{plane: "presumed a=healthy b=unknown c=unhealthy", own: map[string]model.Health{"b": ill}, want: "a=healthy b=unhealthy c=unhealthy"},
		},
		"presumed: where none is left, all serve": {
			{plane: "presumed a=healthy b=healthy", own: map[string]model.Health{"a": ill, "b": ill}, want: "a=healthy b=healthy"},
			{alone: true, own: map[string]model.Health{"a": ill}, want: "a=unhealthy b=healthy"},
			{alone: true, own: map[string]model.Health{"a": ill, "b": ill}, want: "a=healthy b=healthy"},
		},
		"a new group serves at once": {
			{plane: "a=unknown b=unknown", want: "a=healthy b=healthy"},
			{own: map[string]model.Health{"b": ill}, want: "a=healthy b=unhealthy"},
			{plane: "a=unknown b=unhealthy", want: "a=healthy b=unhealthy"},
			{plane: "a=unhealthy b=unhealthy", want: "a=unhealthy b=unhealthy"},
		},
		"a new endpoint waits for its answer": {
			{plane: "a=healthy", want: "a=healthy"},
			{plane: "a=healthy b=unknown", want: "a=healthy b=unhealthy"},
			{own: map[string]model.Health{"b": well}, want: "a=healthy b=healthy"},
			{plane: "a=healthy b=healthy", want: "a=healthy b=healthy"},
		},
		"one that waits serves where nobody else can": {
			{plane: "a=healthy b=unknown", want: "a=healthy b=unhealthy"},
			{plane: "a=unhealthy b=unknown", want: "a=unhealthy b=healthy"},
		},
		"a plane that has just begun": {
			{plane: "a=healthy b=unhealthy c=draining", want: "a=healthy b=unhealthy c=draining"},
			{plane: "a=unknown b=unknown c=draining", want: "a=healthy b=unhealthy c=draining"},
			{plane: "a=unknown b=unknown d=unknown", want: "a=healthy b=unhealthy d=unhealthy"},
			{own: map[string]model.Health{"b": well}, want: "a=healthy b=healthy d=unhealthy"},
			{plane: "a=healthy b=healthy d=healthy", want: "a=healthy b=healthy d=healthy"},
		},
		"what waited was never decided": {
			{plane: "a=healthy b=unknown", want: "a=healthy b=unhealthy"},
			{plane: "b=unknown", want: "b=healthy"},
		},
		"no plane": {
			{plane: "a=healthy b=unhealthy c=draining", want: "a=healthy b=unhealthy c=draining"},
			{own: map[string]model.Health{"a": ill, "b": well}, want: "a=healthy b=unhealthy c=draining"},
			{own: map[string]model.Health{"a": ill, "b": well}, alone: true, want: "a=unhealthy b=healthy c=draining"},
			{own: map[string]model.Health{"a": model.HealthUnknown}, alone: true, want: "a=healthy b=unhealthy c=draining"},
			{own: map[string]model.Health{"a": ill}, want: "a=healthy b=unhealthy c=draining"},
		},
		"an agent that has just begun knows no better": {
			{plane: "a=healthy b=unhealthy", first: true, alone: true, own: map[string]model.Health{"a": ill, "b": ill}, want: "a=healthy b=unhealthy"},
			{plane: "a=unknown b=unknown", first: true, own: map[string]model.Health{"a": ill, "b": well}, want: "a=healthy b=healthy"},
			{alone: true, own: map[string]model.Health{"a": ill, "b": ill}, want: "a=unhealthy b=unhealthy"},
		},
		"one that was not asked yet serves before backups": {
			{plane: "a=unknown +b=healthy", want: "a=healthy b=healthy"},
			{own: map[string]model.Health{"a": ill}, want: "a=unhealthy b=healthy"},
		},
		"backups serve on while new ones wait for their answer": {
			{plane: "a=unhealthy +b=healthy", want: "a=unhealthy b=healthy"},
			{plane: "a=unhealthy c=unknown +b=healthy", want: "a=unhealthy c=unhealthy b=healthy"},
			{own: map[string]model.Health{"c": well}, want: "a=unhealthy c=healthy b=healthy"},
		},
		"backups that wait do not keep others waiting": {
			{plane: "a=unhealthy c=unknown +b=unknown", want: "a=unhealthy c=healthy b=healthy"},
			{plane: "a=healthy c=unknown +b=unknown", want: "a=healthy c=unhealthy b=unhealthy"},
		},
		"presumed: backups serve where no other is left": {
			{plane: "presumed a=healthy +b=healthy", alone: true, own: map[string]model.Health{"a": ill}, want: "a=unhealthy b=healthy"},
			{alone: true, own: map[string]model.Health{"a": ill, "b": ill}, want: "a=healthy b=healthy"},
			{plane: "presumed a=unhealthy c=unknown +b=healthy", want: "a=unhealthy c=healthy b=healthy"},
		},
		"what nobody knew": {
			{plane: "a=unknown b=unknown", first: true, own: map[string]model.Health{"a": ill}, want: "a=unhealthy b=healthy"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &finds{}
			a := NewAssignments(f.own)
			var now *delta.Resource
			versions := map[string]string{}
			for i, s := range steps {
				f.results, f.first, f.alone = s.own, s.first, s.alone
				if s.plane != "" {
					c := assigned(t, s.plane)
					raw := c.Resource.Version
					now = a.Resolve(c).Resource
					if !strings.HasPrefix(now.Version, raw) || c.Resource.Version != raw {
						t.Errorf("step %d: version %s of %s", i, now.Version, raw)
					}
				}
				for _, c := range a.Again() {
					if s.plane != "" {
						t.Errorf("step %d: it is another at once", i)
					}
					now = c.Resource
				}
				got := statusesOf(t, now)
				if got != s.want {
					t.Fatalf("step %d: %s, want %s", i, got, s.want)
				}
				if said, known := versions[now.Version]; known && said != got {
					t.Errorf("step %d: the version of %s is that of %s", i, got, said)
				}
				versions[now.Version] = got
				if len(a.Again()) != 0 {
					t.Errorf("step %d: nothing changed, and it is another", i)
				}
			}
		})
	}
}

// TestHealthLeavesOthersAlone holds that load assignments without checks, those that cannot
// be read and other resources pass as they are, that nothing is kept of what went, and that
// health goes on where the gate refuses what follows.
func TestHealthLeavesOthersAlone(t *testing.T) {
	a := NewAssignments((&finds{}).own)
	garbage := assigned(t, "a=healthy")
	garbage.Resource.Body.Value = append([]byte{0xff}, garbage.Resource.Body.GetValue()...)
	for _, c := range []delta.Change{assigned(t, "a=draining"), garbage, {Type: agentv1.ClusterType, Name: "s", Resource: assigned(t, "a=unknown").Resource}} {
		if got := a.Resolve(c); got.Resource != c.Resource {
			t.Error("it is another")
		}
	}
	for _, gone := range []delta.Change{{Type: agentv1.EndpointType, Name: "s"}, assigned(t, "a=draining")} {
		a.Resolve(assigned(t, "a=unknown"))
		if a.Resolve(gone); len(a.known) != 0 {
			t.Error("it is kept")
		}
	}
	unchecked := assigned(t, "a=draining")
	unchecked.Resource.Body.Value = append([]byte{0xff}, unchecked.Resource.Body.GetValue()...)
	for what, refused := range map[string]delta.Change{
		"a body of another type": {Type: agentv1.EndpointType, Name: "s", Resource: gatetest.Pack(t, "s", &agentv1.Node{})},
		"an unreadable one":      garbage, "an unreadable one without checks": unchecked,
	} {
		f := &finds{}
		a := NewAssignments(f.own)
		a.Resolve(assigned(t, "a=unknown b=unknown"))
		if got := a.Resolve(refused); got.Resource != refused.Resource {
			t.Errorf("%s: it is another", what)
		}
		if err := gate.New().Target([]delta.Change{refused}); !errors.Is(err, gate.ErrUnreadable) {
			t.Errorf("%s: the gate says %v", what, err)
		}
		f.results = map[string]model.Health{"a": model.Unhealthy, "b": model.Healthy}
		if again := a.Again(); len(again) != 1 || statusesOf(t, again[0].Resource) != "a=unhealthy b=healthy" {
			t.Errorf("%s ends the health of the one before: %v", what, again)
		}
	}
}

func TestHealthOfRows(t *testing.T) {
	at := netip.MustParseAddrPort
	frontend := &model.Frontend{
		FrontendKey: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 80},
		Machines:    []string{"m"}, Check: &model.HealthCheck{Kind: model.CheckTCP}, Panic: 40,
	}
	key := frontend.FrontendKey
	row := func(i int, weight uint32, h model.Health) model.FrontendBackend {
		b := model.FrontendBackend{Address: at(fmt.Sprintf("10.0.0.%d:80", i)), Weight: weight, HopWeight: 100, Health: h}
		if weight == 0 {
			b.State = model.BackendDraining
		}
		return b
	}
	id := func(i int) string { return model.NewCheck(row(i, 0, "").Address, *frontend.Check).ID }
	f := &finds{}
	r := NewRows(f.own)
	now := ""
	take := func(list []model.FrontendBackend, changed bool) {
		if !changed {
			return
		}
		var words []string
		for _, b := range list {
			words = append(words, fmt.Sprintf("%d/%s/%s", b.Weight, b.State, b.Health))
		}
		now = strings.Join(words, " ")
	}
	sends := func(list ...model.FrontendBackend) {
		sent := slices.Clone(list)
		take(r.SetBackends(key, list), true)
		if !slices.Equal(list, sent) {
			t.Error("what the plane sent was changed in its place")
		}
	}
	expect := func(what, want string) {
		t.Helper()
		for _, list := range r.Again() {
			take(list, true)
		}
		if now != want {
			t.Errorf("%s: %s, want %s", what, now, want)
		}
		if n := len(r.Again()); n != 0 {
			t.Errorf("%s: nothing changed, and %d are others", what, n)
		}
	}
	well, ill, unknown := model.Healthy, model.Unhealthy, model.HealthUnknown
	sends(row(1, 100, well), row(2, 0, ill), row(3, 100, well))
	take(r.SetFrontend(key, frontend))
	expect("the plane's word", "100/ready/healthy 0/draining/unhealthy 100/ready/healthy")
	f.results = map[string]model.Health{id(1): ill, id(2): well}
	expect("there is a plane", "100/ready/healthy 0/draining/unhealthy 100/ready/healthy")
	f.alone, f.first = true, true
	expect("it has just begun to ask", "100/ready/healthy 0/draining/unhealthy 100/ready/healthy")
	f.first = false
	expect("there is none", "0/draining/unhealthy 0/draining/unhealthy 100/ready/healthy")
	f.results[id(3)] = ill
	expect("all but none would go", "100/ready/healthy 0/draining/unhealthy 100/ready/healthy")
	f.results[id(3)] = well
	f.alone = false
	expect("the plane is back", "100/ready/healthy 0/draining/unhealthy 100/ready/healthy")
	f.results = nil
	sends(row(1, 100, unknown), row(2, 100, unknown), row(3, 100, unknown))
	expect("it has just begun", "100/ready/unknown 0/draining/unhealthy 100/ready/unknown")
	sends(row(1, 100, unknown), row(2, 100, unknown), row(3, 100, well))
	expect("it learns", "100/ready/unknown 0/draining/unhealthy 100/ready/healthy")
	f.results, f.first = map[string]model.Health{id(2): well, id(1): ill}, true
	expect("what it finds when it has just begun to ask", "100/ready/unknown 100/ready/unknown 100/ready/healthy")
	f.first = false
	expect("what this machine finds", "0/draining/unhealthy 100/ready/unknown 100/ready/healthy")
	sends(row(1, 100, well), row(2, 100, well), row(3, 100, well))
	expect("it knows", "100/ready/healthy 100/ready/healthy 100/ready/healthy")
	r.SetBackends(key, nil)
	r.SetFrontend(key, nil)
	if len(r.known) != 0 {
		t.Error("a frontend that went is kept")
	}
}
