package progress

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

var (
	routeA = model.Object{Kind: "HTTPRoute", Namespace: "default", Name: "a"}
	routeB = model.Object{Kind: "HTTPRoute", Namespace: "default", Name: "b"}
	hostA  = model.HostKey{Listener: "http-80", Host: "a.example"}
	hostB  = model.HostKey{Listener: "http-80", Host: "b.example"}
)

func revision(n uint64) delta.Revision { return delta.Revision{Epoch: 1, Number: n} }

// routed is a virtual host whose one route leads to a group.
func routed(k model.HostKey, g model.GroupID) *model.VirtualHost {
	return &model.VirtualHost{HostKey: k, Routes: []model.Route{{Name: "r", Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: g, Weight: 1}}}}}}
}

// trackerRig is a tracker of two routes on one listener, in one view.
func trackerRig(t *testing.T) *Tracker {
	t.Helper()
	c := catalog.New(catalog.Config{Health: health.New()})
	var tr *Tracker
	tr = New(c, Inputs{Serving: func(machine string, id model.ListenerID) (bool, delta.Revision) {
		if machine == "late" {
			return true, revision(10)
		}
		return tr.machines[machine].Views == "all" && id == "http-80", delta.Revision{}
	}})
	ch := translate.Changes{
		Listeners:    map[model.ListenerID]*model.Listener{"http-80": {ID: "http-80", Port: 80}},
		VirtualHosts: map[model.HostKey]*model.VirtualHost{hostA: routed(hostA, "ga"), hostB: routed(hostB, "gb")},
		Groups:       map[model.GroupID]*model.BackendGroup{"ga": {ID: "ga", Set: "s"}, "gb": {ID: "gb", Set: "s"}},
		Views:        map[model.ViewID]*model.View{"all": {ID: "all", Listeners: []model.ListenerID{"http-80"}}, "none": {ID: "none"}},
		Statuses: map[model.Object]*translate.Status{
			routeA: {Hosts: []model.HostKey{hostA}}, routeB: {Hosts: []model.HostKey{hostB}},
		},
	}
	c.Apply(ch)
	tr.Apply(revision(5), ch)
	return tr
}

func machineAt(name string, applied uint64, adjust ...func(*Machine)) *Machine {
	s := &Machine{Name: name, Views: "all", Applied: revision(applied), Wanted: revision(100)}
	for _, f := range adjust {
		f(s)
	}
	return s
}

func TestResults(t *testing.T) {
	lost := func(s *Machine) { s.Lost = true }
	cordoned := func(s *Machine) { s.Cordoned = true }
	unproxied := func(s *Machine) { s.Unproxied = true }
	silent := func(s *Machine) { s.Silent = true }
	unheard := func(s *Machine) { s.Unheard = true }
	elsewhere := func(s *Machine) { s.Views = "none" }
	problem := func(kind agentv1.Problem_Kind, typ delta.Type, name string) func(*Machine) {
		return func(s *Machine) {
			s.Note(typ, name, Fault{Refused: kind != agentv1.Problem_KIND_WAITING, Message: "why"})
		}
	}
	refused, waiting := agentv1.Problem_KIND_REFUSED, agentv1.Problem_KIND_WAITING
	shardA := xds.RouteConfigurationName("http-80", xds.Shard("http-80", "a.example"))
	for name, c := range map[string]struct {
		machines []*Machine
		state    State
		words    string
	}{
		"nobody":              {nil, Pending, "no machine serves this"},
		"one has it":          {[]*Machine{machineAt("m1", 5)}, Programmed, ""},
		"one is behind":       {[]*Machine{machineAt("m1", 5), machineAt("m2", 4), machineAt("m3", 3)}, Pending, "waiting for m2, m3"},
		"came to it later":    {[]*Machine{machineAt("m1", 9), machineAt("late", 9)}, Pending, "waiting for late"},
		"came to it, has it":  {[]*Machine{machineAt("late", 10)}, Programmed, ""},
		"nothing new for it":  {[]*Machine{machineAt("m1", 4, func(s *Machine) { s.Wanted = revision(4) })}, Programmed, ""},
		"an epoch behind":     {[]*Machine{machineAt("m1", 0, func(s *Machine) { s.Applied = delta.Revision{Number: 99} })}, Pending, "waiting for m1"},
		"lost is named":       {[]*Machine{machineAt("m1", 5), machineAt("m2", 1, lost)}, Programmed, "; lost: m2"},
		"all lost":            {[]*Machine{machineAt("m1", 5, lost)}, Pending, "lost: m1"},
		"joined just now":     {[]*Machine{machineAt("m1", 5), machineAt("m2", 0, silent)}, Programmed, "every machine concerned runs it"},
		"only joined":         {[]*Machine{machineAt("m2", 0, silent)}, Pending, "waiting for the first report of m2"},
		"cordoned is none":    {[]*Machine{machineAt("m1", 1, cordoned)}, Pending, "no machine serves this; cordoned: m1"},
		"no proxy is none":    {[]*Machine{machineAt("m1", 1, cordoned, unproxied), machineAt("m2", 1, unproxied)}, Pending, "no machine serves this; cordoned: m1; without a proxy (--envoy none): m2"},
		"lost and cordoned":   {[]*Machine{machineAt("m1", 5, lost), machineAt("m2", 5, cordoned), machineAt("m3", 5, unproxied)}, Pending, "no machine that serves this is connected; cordoned: m2; without a proxy (--envoy none): m3; lost: m1"},
		"none of its view":    {[]*Machine{machineAt("m1", 1, elsewhere, unproxied)}, Pending, "no machine serves this"},
		"cordoned is behind":  {[]*Machine{machineAt("m1", 1, cordoned), machineAt("m2", 7)}, Programmed, ""},
		"another view":        {[]*Machine{machineAt("m1", 1, elsewhere), machineAt("m2", 7)}, Programmed, ""},
		"unheard":             {[]*Machine{machineAt("m1", 9), machineAt("m2", 0, unheard)}, Unknown, "m2"},
		"host refused":        {[]*Machine{machineAt("m1", 9, problem(refused, agentv1.RouteType, shardA+"/a.example")), machineAt("m2", 9)}, Refused, "m1: why"},
		"shard refused":       {[]*Machine{machineAt("m1", 9, problem(refused, agentv1.RouteType, shardA))}, Refused, "m1: why"},
		"listener refused":    {[]*Machine{machineAt("m1", 9, problem(refused, agentv1.ListenerType, "http-80"))}, Refused, "m1: why"},
		"cluster refused":     {[]*Machine{machineAt("m1", 9, problem(refused, agentv1.ClusterType, "ga"))}, Refused, "m1: why"},
		"assignment refused":  {[]*Machine{machineAt("m1", 9, problem(refused, agentv1.EndpointType, "ga#0123"))}, Refused, "m1: why"},
		"another's host":      {[]*Machine{machineAt("m1", 9, problem(refused, agentv1.RouteType, xds.RouteConfigurationName("http-80", xds.Shard("http-80", "b.example"))+"/b.example"))}, Programmed, ""},
		"another's cluster":   {[]*Machine{machineAt("m1", 9, problem(refused, agentv1.ClusterType, "gb"))}, Programmed, ""},
		"waits for a cluster": {[]*Machine{machineAt("m1", 9, problem(waiting, agentv1.RouteType, shardA+"/a.example"))}, Pending, "waiting for m1 (why)"},
		"refused beats waits": {[]*Machine{machineAt("m1", 9, problem(waiting, agentv1.RouteType, shardA+"/a.example"), problem(refused, agentv1.ClusterType, "ga"))}, Refused, "m1: why"},
		"an older refusal":    {[]*Machine{machineAt("m1", 4, problem(refused, agentv1.RouteType, shardA+"/a.example"))}, Pending, "waiting for m1"},
		"odd names":           {[]*Machine{machineAt("m1", 9, problem(refused, agentv1.RouteType, "x"), problem(refused, agentv1.RouteType, "http-80/9999999"), problem(refused, "odd", "y"))}, Programmed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := trackerRig(t)
			for _, m := range c.machines {
				tr.SetMachine(m.Name, m)
			}
			if v := tr.Judge(routeA); v.State != c.state || !strings.Contains(v.Message, c.words) {
				t.Errorf("it is %+v", v)
			}
		})
	}
}

func TestManyMachinesAreNotAllNamed(t *testing.T) {
	tr := trackerRig(t)
	for i := range 50 {
		tr.SetMachine(fmt.Sprintf("m%02d", i), machineAt(fmt.Sprintf("m%02d", i), 1))
	}
	if got := tr.Judge(routeA).Message; got != "waiting for m00, m01, m02, m03, m04, m05, m06, m07, and 42 more" {
		t.Errorf("the message is %q", got)
	}
}

// What a machine says concerns the objects that it is of, and only those.
func TestWhoIsJudgedAgain(t *testing.T) {
	tr := trackerRig(t)
	expect := func(what string, got map[model.Object]bool, want ...model.Object) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("%s: %v", what, got)
		}
		for _, o := range want {
			if !got[o] {
				t.Errorf("%s: not %s", what, o)
			}
		}
	}
	judge := func() { tr.Judge(routeA); tr.Judge(routeB) }
	expect("a new machine", tr.SetMachine("m", machineAt("m", 4)), routeA, routeB)
	judge()
	expect("it catches up", tr.SetMachine("m", machineAt("m", 5)), routeA, routeB)
	judge()
	expect("it goes on", tr.SetMachine("m", machineAt("m", 6)))
	bad := machineAt("m", 6)
	bad.Note(agentv1.ClusterType, "gb", Fault{Refused: true})
	expect("a cluster is refused", tr.SetMachine("m", bad), routeB)
	expect("and is well again", tr.SetMachine("m", machineAt("m", 6)), routeB)
	expect("it is lost", tr.SetMachine("m", machineAt("m", 6, func(s *Machine) { s.Lost = true })), routeA, routeB)
	expect("it is gone", tr.SetMachine("m", nil), routeA, routeB)
	expect("it is gone still", tr.SetMachine("m", nil))

	tr.SetMachine("m", machineAt("m", 6))
	judge()
	ch := translate.Changes{Groups: map[model.GroupID]*model.BackendGroup{"ga": {ID: "ga", Set: "s", Balance: model.BalanceRandom}}}
	tr.catalog.Apply(ch)
	expect("a group changes", tr.Apply(revision(7), ch), routeA)
	if v := tr.Judge(routeA); v.State != Pending {
		t.Errorf("a route whose group changed is %+v", v)
	}
	expect("a set changes", tr.Apply(revision(8), translate.Changes{Sets: map[model.SetID]*model.BackendSet{"s": {ID: "s"}}}))
	expect("a route goes", tr.Apply(revision(9), translate.Changes{Statuses: map[model.Object]*translate.Status{routeA: nil}}), routeA)
	if len(tr.open) != 0 || len(tr.byHost) != 1 {
		t.Errorf("left are %v and %v", tr.open, tr.byHost)
	}
	tr.Restart(delta.Revision{Epoch: 2, Number: 1})
	if v := tr.Judge(routeB); v.State != Pending {
		t.Errorf("a new epoch found %+v", v)
	}
}

// That one machine refuses is not the last word while another has still to follow: it may tell
// of its fault before it has come as far.
func TestRefusalsOfAllMachinesAreTold(t *testing.T) {
	tr := trackerRig(t)
	refuses := func(s *Machine) {
		s.Note(agentv1.ClusterType, "ga", Fault{Refused: true, Message: "why"})
	}
	tr.SetMachine("m1", machineAt("m1", 6, refuses))
	for _, step := range []struct {
		applied uint64
		want    string
	}{{4, "m1: why"}, {6, "m1: why; m2: why"}} {
		if stale := tr.SetMachine("m2", machineAt("m2", step.applied, refuses)); !stale[routeA] {
			t.Errorf("the route is not looked at when m2 has come to %d", step.applied)
			continue
		}
		if v := tr.Judge(routeA); v.State != Refused || v.Message != step.want {
			t.Errorf("when m2 has come to %d it is %+v, want %q", step.applied, v, step.want)
		}
	}
}

// A problem with a Secret concerns those who show it, and nobody where a machine has made up its name.
func TestProblemsOfSecretsConcernTheirHosts(t *testing.T) {
	c := catalog.New(catalog.Config{Health: health.New()})
	k, other := model.HostKey{Listener: "https-443", Host: "a.test"}, model.HostKey{Listener: "https-443", Host: "b.test"}
	c.Apply(translate.Changes{
		Listeners: map[model.ListenerID]*model.Listener{k.Listener: {ID: k.Listener, Port: 443, Protocol: model.ProtocolHTTPS}},
		TLSHosts: map[model.HostKey]*model.TLSHost{
			k:     {HostKey: k, Certificates: []model.CertificateID{"team/one"}},
			other: {HostKey: other, Certificates: []model.CertificateID{"team/two"}},
		},
	})
	one, two := c.SecretsOf(k)[0], c.SecretsOf(other)[0]
	tr := New(c, Inputs{})
	mine, theirs := model.Object{Kind: "HTTPRoute", Name: "mine"}, model.Object{Kind: "HTTPRoute", Name: "theirs"}
	index(tr.byHost, k, mine)
	index(tr.byHost, other, theirs)
	tr.targets[mine], tr.targets[theirs] = &target{object: mine}, &target{object: theirs}
	tr.SetMachine("edge-1", &Machine{})
	for name, want := range map[string]map[model.Object]bool{"made-up": {}, one: {mine: true}, two: {theirs: true}} {
		if got := tr.SetMachine("edge-1", &Machine{secrets: map[string]Fault{name: {Message: "no"}}}); !maps.Equal(got, want) {
			t.Errorf("%s: %v are judged anew, want %v", name, got, want)
		}
		tr.SetMachine("edge-1", &Machine{})
	}
}
