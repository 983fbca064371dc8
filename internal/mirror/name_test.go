package mirror

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

func TestNamespace(t *testing.T) {
	byID := func(u *v1alpha1.Upstream) { u.Spec.Namespaces.ProjectsBy = v1alpha1.ProjectsByID }
	for _, c := range []struct {
		scope, scopeName string
		options          []func(*v1alpha1.Upstream)
		want             string
	}{
		{"team", "", nil, "team"},
		{"5C1E", "Team-A", []func(*v1alpha1.Upstream){openStack}, "team-a"},
		{"5C1E", "Team-A", []func(*v1alpha1.Upstream){openStack, byID}, "5c1e"},
		{"team", "", []func(*v1alpha1.Upstream){byID}, "team"},
		{"5C1E", "Team-A", []func(*v1alpha1.Upstream){openStack, byID, mapped("Team-A", "here")}, "here"},
		{"5C1E", "Team-A", []func(*v1alpha1.Upstream){openStack, mapped("5C1E", "here")}, "here"},
		{"5C1E", "Team-A", []func(*v1alpha1.Upstream){openStack, mapped("team-a", "here")}, "team-a"},
		{"team", "", []func(*v1alpha1.Upstream){mapped("other", "x"), mapped("team", "first"), mapped("team", "second")}, "first"},
	} {
		if have := namespaceOf(&anUpstream("up", c.options...).Spec, c.scope, c.scopeName); have != c.want {
			t.Errorf("%s (%s) is namespace %q, expected %q", c.scope, c.scopeName, have, c.want)
		}
	}
}

func TestSelects(t *testing.T) {
	for _, c := range []struct {
		include, exclude string
		selects, not     string // "id=name" is a project
	}{
		{"", "", "team default 5c1e=Team kube kube-prometheus", "kube-system kube-public kube-node-lease"},
		{"*", "", "team default", "kube-system"},
		{"kube-system team", "", "team kube-system", "kube-public teams"},
		{"kube-*", "", "kube-system", "team"},
		{"team*", "*-test team0?", "team team-test2 5c1e=team", "team-test 5c1e=team-test team-test=other"},
		{"a*b*c", "", "abc axbxc abbc aabcc", "ab ac abcx xabc"},
		{"a*a", "", "aa aba", "a"},
		{"5c1e", "", "5c1e=Team", "5C1E=Team"},
		{"", "*", "", "team 5c1e=team"},
		{"", "team", "teams", "team 5c1e=team team=other"},
	} {
		ask := func(list string, want bool) {
			for name := range strings.FieldsSeq(list) {
				scope, scopeName, isProject := strings.Cut(name, "=")
				u := anUpstream("up")
				if isProject {
					openStack(u)
				}
				u.Spec.Namespaces.Include, u.Spec.Namespaces.Exclude = strings.Fields(c.include), strings.Fields(c.exclude)
				if Selects(&u.Spec, scope, scopeName) != want {
					t.Errorf("include %q, exclude %q: it is wrong that %s is selected: %v", c.include, c.exclude, name, !want)
				}
			}
		}
		ask(c.selects, true)
		ask(c.not, false)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 70)
	w := newWorld(t, "team")
	w.set("a")
	w.set("a-b")
	w.set("up")
	// A name that begins with another, longer Upstream's is left to that one.
	w.list("a", app("team/b-c", "10.0.0.1"))
	w.list("a-b", app("team/c", "10.0.0.2"))
	w.list("up", app("team/"+long, "10.0.0.3"), app("team/"+long+"y", "10.0.0.4"))
	w.settle()
	second := "team/a-b-c-" + digest("a", "team", "b-c")
	first60 := "team/up-" + strings.Repeat("x", 49) + "-"
	want := []string{
		"team/a-b-c: 10.0.0.2", second + ": 10.0.0.1",
		first60 + digest("up", "team", long) + ": 10.0.0.3", first60 + digest("up", "team", long+"y") + ": 10.0.0.4",
	}
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(strings.Split(a, ":")[0], strings.Split(b, ":")[0]) })
	expect(t, "in effect", w.inEffect(), want...)
	expect(t, "stored", w.stored(), want...)

	// After a start all have their names again, in whatever order lists come.
	w.restart(anUpstream("a"), anUpstream("a-b"), anUpstream("up"))
	w.list("a-b", app("team/c", "10.0.0.2"))
	w.list("up", app("team/"+long, "10.0.0.3"), app("team/"+long+"y", "10.0.0.4"))
	w.list("a", app("team/b-c", "10.0.0.1"))
	if changed := w.settle(); len(changed) > 0 {
		t.Errorf("after a start it wrote %v", changed)
	}
	expect(t, "in effect after a start", w.inEffect(), want...)
	w.m.Remove("a", w.now, model.UpstreamKey{Scope: "team", Name: "b-c"})
	w.settle()
	if strings.Contains(w.inEffect(), second) || !strings.Contains(w.inEffect(), "team/a-b-c: 10.0.0.2") {
		t.Errorf("in effect:\n%s", w.inEffect())
	}
}

func TestNamesOfMappedNamespaces(t *testing.T) {
	w := newWorld(t, "here")
	w.set("up", mapped("one", "here"), mapped("two", "here"))
	w.list("up", app("one/app", "10.0.0.1"), app("two/app", "10.0.0.2"))
	w.settle()
	want := []string{"here/up-app: 10.0.0.1", "here/up-app-" + digest("up", "two", "app") + ": 10.0.0.2"}
	expect(t, "in effect", w.inEffect(), want...)
	if s, is := w.m.Lookup(snapshot.Name{Namespace: "here", Name: "up-app"}); !is || s.From.Key.Scope != "one" || s.Upstream != "up" {
		t.Errorf("up-app is of %+v", s)
	}
	// Half of it is gone, and the plane starts.
	w.restart(anUpstream("up", mapped("one", "here"), mapped("two", "here")))
	w.list("up", app("two/app", "10.0.0.2"))
	w.settle()
	expect(t, "in effect", w.inEffect(), want[1])
}

// A service that moves leaves its name to another one.
func TestNamesOfServicesThatMove(t *testing.T) {
	w := newWorld(t, "team", "other")
	w.set("up", openStack, threshold(100))
	in := func(name string, s *model.UpstreamService) *model.UpstreamService { s.ScopeName = name; return s }
	w.list("up", in("team", app("p1/lb", "10.0.0.1")), in("other", app("p2/lb", "10.0.0.2")))
	w.settle()
	w.list("up", in("other", app("p1/lb", "10.0.0.1")), in("team", app("p2/lb", "10.0.0.2"))) // projects were renamed
	w.settle()
	w.list("up", in("other", app("p1/lb", "10.0.0.1")), in("team", app("p2/lb", "10.0.0.2")))
	w.settle()
	if have := w.inEffect(); strings.Count(have, "10.0.0.1") != 1 || strings.Count(have, "10.0.0.2") != 1 ||
		strings.Index(have, "10.0.0.1") > strings.Index(have, "10.0.0.2") {
		t.Errorf("in effect:\n%s", have)
	}
	expect(t, "stored", w.stored(), w.inEffect())
}

func TestInvalidNames(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", openStack)
	w.list("up", app("team/a.b"), app("team/é"), app("team/x-"), app("team/Web", "10.0.0.1"), app("No Such/app"), app("absent/app"), app("/app"))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-web: 10.0.0.1")
	const dns = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, " +
		"and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
	expect(t, "refusals", w.refusals("up"),
		`Namespace Service /app: no namespace can have the name "": give it another one in spec.namespaces.map`,
		`Namespace Service No Such/app: no namespace can have the name "no such": give it another one in spec.namespaces.map`,
		"Namespace Service absent/app: namespace absent does not exist: create it, or map another one in spec.namespaces.map",
		`Name Service team/a.b: no Service can have the name "up-a.b": `+dns,
		`Name Service team/x-: no Service can have the name "up-x-": `+dns,
		`Name Service team/é: no Service can have the name "up-é": `+dns)
	expect(t, "counts", w.counts("up"), "seen 7/1 replicated 1/1 held 0/0")
}

// FuzzNames has services of two upstreams in one namespace: every name is valid, and no two are equal.
func FuzzNames(f *testing.F) {
	f.Add("a", "b-c", "a-b", "c", "s", "s", false)
	f.Add("up", strings.Repeat("x", 80), "up", strings.Repeat("x", 80)+"y", "s", "s", false)
	f.Add("up", strings.Repeat("x", 80), "up", strings.Repeat("x", 80)+"y", "s", "s", true)
	f.Add("up", "Web", "up", "web", "s", "t", true)
	f.Add("up", "é", "up", strings.Repeat("é-", 40), "s", "t", true)
	f.Fuzz(func(t *testing.T, up1, name1, up2, name2, scope1, scope2 string, asGimbal bool) {
		upstream := func(name string) bool { return len(name) <= 32 && len(validation.IsDNS1035Label(name)) == 0 }
		if !upstream(up1) || !upstream(up2) || up1 == up2 && scope1 == scope2 && name1 == name2 {
			t.Skip()
		}
		options := []func(*v1alpha1.Upstream){openStack, mapped(scope1, "team"), mapped(scope2, "team")}
		if asGimbal {
			options = append(options, gimbal)
		}
		w := newWorld(t, "team")
		w.set(up1, options...)
		w.set(up2, options...)
		key1, key2 := model.UpstreamKey{Scope: scope1, Name: name1}, model.UpstreamKey{Scope: scope2, Name: name2}
		port := app("/").Ports
		w.m.Replace(up1, []*model.UpstreamService{{Key: key1, Ports: port}}, w.now)
		if up1 != up2 {
			w.m.Replace(up2, nil, w.now)
		}
		w.m.Put(up2, w.now, &model.UpstreamService{Key: key2, Ports: port})
		w.settle()
		n := 0
		for k := range w.effect {
			if n++; len(validation.IsDNS1035Label(k.Name.Name)) > 0 {
				t.Errorf("%s is no name of a Service", k.Name.Name)
			}
		}
		for by, name := range map[string]model.UpstreamKey{up1: key1, up2: key2} {
			if e := w.m.upstreams[by].services[name]; e.refusal == nil {
				if n--; w.effect[snapshot.Key{Kind: snapshot.KindService, Name: e.name}] == nil {
					t.Errorf("%v of %s is not in effect", name, by)
				}
			}
		}
		if up1 == up2 && w.m.upstreams[up1].services[key1].refusal == nil {
			n--
		}
		if n != 0 {
			t.Errorf("%d Services are of nothing", n)
		}
		s1, s2 := w.m.upstreams[up1].services[key1], w.m.upstreams[up2].services[key2]
		if s1.refusal == nil && s1.name == s2.name {
			t.Errorf("both are %v", s1.name)
		}
	})
}
