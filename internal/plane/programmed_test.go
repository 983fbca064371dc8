package plane

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
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
func trackerRig(t *testing.T) *tracker {
	t.Helper()
	c := catalog.New(catalog.Config{Health: health.New()})
	tr := newTracker(c)
	tr.serving = func(machine string, id model.ListenerID) (bool, delta.Revision) {
		if machine == "late" {
			return true, revision(10)
		}
		return tr.machines[machine].views == "all" && id == "http-80", delta.Revision{}
	}
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
	tr.changed(revision(5), ch)
	return tr
}

func machineAt(name string, applied uint64, adjust ...func(*standing)) *standing {
	s := &standing{name: name, views: "all", applied: revision(applied), wanted: revision(100)}
	for _, f := range adjust {
		f(s)
	}
	return s
}

func TestVerdicts(t *testing.T) {
	lost := func(s *standing) { s.lost = true }
	cordoned := func(s *standing) { s.cordoned = true }
	unproxied := func(s *standing) { s.unproxied = true }
	silent := func(s *standing) { s.silent = true }
	unheard := func(s *standing) { s.unheard = true }
	elsewhere := func(s *standing) { s.views = "none" }
	problem := func(kind agentv1.Problem_Kind, typ delta.Type, name string) func(*standing) {
		return func(s *standing) { s.note(southbound.Problem{Kind: kind, Type: typ, Name: name, Message: "why"}) }
	}
	refused, waiting := agentv1.Problem_KIND_REFUSED, agentv1.Problem_KIND_WAITING
	shardA := xds.RouteConfigurationName("http-80", xds.Shard("http-80", "a.example"))
	for name, c := range map[string]struct {
		machines []*standing
		state    verdictState
		words    string
	}{
		"nobody":              {nil, verdictPending, "no machine serves this"},
		"one has it":          {[]*standing{machineAt("m1", 5)}, verdictProgrammed, ""},
		"one is behind":       {[]*standing{machineAt("m1", 5), machineAt("m2", 4), machineAt("m3", 3)}, verdictPending, "waiting for m2, m3"},
		"came to it later":    {[]*standing{machineAt("m1", 9), machineAt("late", 9)}, verdictPending, "waiting for late"},
		"came to it, has it":  {[]*standing{machineAt("late", 10)}, verdictProgrammed, ""},
		"nothing new for it":  {[]*standing{machineAt("m1", 4, func(s *standing) { s.wanted = revision(4) })}, verdictProgrammed, ""},
		"an epoch behind":     {[]*standing{machineAt("m1", 0, func(s *standing) { s.applied = delta.Revision{Number: 99} })}, verdictPending, "waiting for m1"},
		"lost is named":       {[]*standing{machineAt("m1", 5), machineAt("m2", 1, lost)}, verdictProgrammed, "; lost: m2"},
		"all lost":            {[]*standing{machineAt("m1", 5, lost)}, verdictPending, "lost: m1"},
		"joined just now":     {[]*standing{machineAt("m1", 5), machineAt("m2", 0, silent)}, verdictProgrammed, "every machine concerned runs it"},
		"only joined":         {[]*standing{machineAt("m2", 0, silent)}, verdictPending, "waiting for the first report of m2"},
		"cordoned is none":    {[]*standing{machineAt("m1", 1, cordoned)}, verdictPending, "no machine serves this; cordoned: m1"},
		"no proxy is none":    {[]*standing{machineAt("m1", 1, cordoned, unproxied), machineAt("m2", 1, unproxied)}, verdictPending, "no machine serves this; cordoned: m1; without a proxy (--envoy none): m2"},
		"lost and cordoned":   {[]*standing{machineAt("m1", 5, lost), machineAt("m2", 5, cordoned), machineAt("m3", 5, unproxied)}, verdictPending, "no machine that serves this is connected; cordoned: m2; without a proxy (--envoy none): m3; lost: m1"},
		"none of its view":    {[]*standing{machineAt("m1", 1, elsewhere, unproxied)}, verdictPending, "no machine serves this"},
		"cordoned is behind":  {[]*standing{machineAt("m1", 1, cordoned), machineAt("m2", 7)}, verdictProgrammed, ""},
		"another view":        {[]*standing{machineAt("m1", 1, elsewhere), machineAt("m2", 7)}, verdictProgrammed, ""},
		"unheard":             {[]*standing{machineAt("m1", 9), machineAt("m2", 0, unheard)}, verdictHold, "m2"},
		"host refused":        {[]*standing{machineAt("m1", 9, problem(refused, typeRoute, shardA+"/a.example")), machineAt("m2", 9)}, verdictRefused, "m1: why"},
		"shard refused":       {[]*standing{machineAt("m1", 9, problem(refused, typeRoute, shardA))}, verdictRefused, "m1: why"},
		"listener refused":    {[]*standing{machineAt("m1", 9, problem(refused, typeListener, "http-80"))}, verdictRefused, "m1: why"},
		"cluster refused":     {[]*standing{machineAt("m1", 9, problem(refused, typeCluster, "ga"))}, verdictRefused, "m1: why"},
		"assignment refused":  {[]*standing{machineAt("m1", 9, problem(refused, typeEndpoint, "ga#0123"))}, verdictRefused, "m1: why"},
		"another's host":      {[]*standing{machineAt("m1", 9, problem(refused, typeRoute, xds.RouteConfigurationName("http-80", xds.Shard("http-80", "b.example"))+"/b.example"))}, verdictProgrammed, ""},
		"another's cluster":   {[]*standing{machineAt("m1", 9, problem(refused, typeCluster, "gb"))}, verdictProgrammed, ""},
		"waits for a cluster": {[]*standing{machineAt("m1", 9, problem(waiting, typeRoute, shardA+"/a.example"))}, verdictPending, "waiting for m1 (why)"},
		"refused beats waits": {[]*standing{machineAt("m1", 9, problem(waiting, typeRoute, shardA+"/a.example"), problem(refused, typeCluster, "ga"))}, verdictRefused, "m1: why"},
		"an older refusal":    {[]*standing{machineAt("m1", 4, problem(refused, typeRoute, shardA+"/a.example"))}, verdictPending, "waiting for m1"},
		"odd names":           {[]*standing{machineAt("m1", 9, problem(refused, typeRoute, "x"), problem(refused, typeRoute, "http-80/9999999"), problem(refused, "odd", "y"))}, verdictProgrammed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := trackerRig(t)
			for _, m := range c.machines {
				tr.machine(m.name, m)
			}
			if v := tr.judge(routeA); v.State != c.state || !strings.Contains(v.Message, c.words) {
				t.Errorf("verdict is %+v", v)
			}
		})
	}
}

func TestManyMachinesAreNotAllNamed(t *testing.T) {
	tr := trackerRig(t)
	for i := range 50 {
		tr.machine(fmt.Sprintf("m%02d", i), machineAt(fmt.Sprintf("m%02d", i), 1))
	}
	if got := tr.judge(routeA).Message; got != "waiting for m00, m01, m02, m03, m04, m05, m06, m07, and 42 more" {
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
	judge := func() { tr.judge(routeA); tr.judge(routeB) }
	expect("a new machine", tr.machine("m", machineAt("m", 4)), routeA, routeB)
	judge()
	expect("it catches up", tr.machine("m", machineAt("m", 5)), routeA, routeB)
	judge()
	expect("it goes on", tr.machine("m", machineAt("m", 6)))
	bad := machineAt("m", 6)
	bad.note(southbound.Problem{Kind: agentv1.Problem_KIND_REFUSED, Type: typeCluster, Name: "gb"})
	expect("a cluster is refused", tr.machine("m", bad), routeB)
	expect("and is well again", tr.machine("m", machineAt("m", 6)), routeB)
	expect("it is lost", tr.machine("m", machineAt("m", 6, func(s *standing) { s.lost = true })), routeA, routeB)
	expect("it is gone", tr.machine("m", nil), routeA, routeB)
	expect("it is gone still", tr.machine("m", nil))

	tr.machine("m", machineAt("m", 6))
	judge()
	ch := translate.Changes{Groups: map[model.GroupID]*model.BackendGroup{"ga": {ID: "ga", Set: "s", Balance: model.BalanceRandom}}}
	tr.catalog.Apply(ch)
	expect("a group changes", tr.changed(revision(7), ch), routeA)
	if v := tr.judge(routeA); v.State != verdictPending {
		t.Errorf("a route whose group changed is %+v", v)
	}
	expect("a set changes", tr.changed(revision(8), translate.Changes{Sets: map[model.SetID]*model.BackendSet{"s": {ID: "s"}}}))
	expect("a route goes", tr.changed(revision(9), translate.Changes{Statuses: map[model.Object]*translate.Status{routeA: nil}}), routeA)
	if len(tr.unsettled) != 0 || len(tr.byHost) != 1 {
		t.Errorf("left are %v and %v", tr.unsettled, tr.byHost)
	}
	tr.restart(delta.Revision{Epoch: 2, Number: 1})
	if v := tr.judge(routeB); v.State != verdictPending {
		t.Errorf("a new epoch found %+v", v)
	}
}

// That one machine refuses is not the last word while another has still to follow: it may tell
// of its fault before it has come as far.
func TestRefusalsOfAllMachinesAreTold(t *testing.T) {
	tr := trackerRig(t)
	refuses := func(s *standing) {
		s.note(southbound.Problem{Kind: agentv1.Problem_KIND_REFUSED, Type: typeCluster, Name: "ga", Message: "why"})
	}
	tr.machine("m1", machineAt("m1", 6, refuses))
	for _, step := range []struct {
		applied uint64
		want    string
	}{{4, "m1: why"}, {6, "m1: why; m2: why"}} {
		if stale := tr.machine("m2", machineAt("m2", step.applied, refuses)); !stale[routeA] {
			t.Errorf("the route is not looked at when m2 has come to %d", step.applied)
			continue
		}
		if v := tr.judge(routeA); v.State != verdictRefused || v.Message != step.want {
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
	tr := newTracker(c)
	mine, theirs := model.Object{Kind: "HTTPRoute", Name: "mine"}, model.Object{Kind: "HTTPRoute", Name: "theirs"}
	index(tr.byHost, k, mine)
	index(tr.byHost, other, theirs)
	tr.targets[mine], tr.targets[theirs] = &target{object: mine}, &target{object: theirs}
	tr.machine("edge-1", &standing{})
	for name, want := range map[string]map[model.Object]bool{"made-up": {}, one: {mine: true}, two: {theirs: true}} {
		if got := tr.machine("edge-1", &standing{secrets: map[string]fault{name: {message: "no"}}}); !maps.Equal(got, want) {
			t.Errorf("%s: %v are judged anew, want %v", name, got, want)
		}
		tr.machine("edge-1", &standing{})
	}
}
