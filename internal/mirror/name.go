package mirror

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

const maxName = validation.DNS1035LabelMaxLength // of a Service

// namespaceOf is the namespace here of a namespace or project of an upstream. Scope is its name or ID, and scopeName the name of a
// project, which may be empty.
func namespaceOf(spec *v1alpha1.UpstreamSpec, scope, scopeName string) string {
	name := cmp.Or(scopeName, scope)
	for _, m := range spec.Namespaces.Map {
		if m.From == scope || m.From == name {
			return m.To
		}
	}
	if spec.OpenStack != nil && spec.Namespaces.ProjectsBy == v1alpha1.ProjectsByID {
		return strings.ToLower(scope)
	}
	return strings.ToLower(name)
}

// Selects says whether a spec selects a namespace or project. "*" stands for any characters in its patterns.
func Selects(spec *v1alpha1.UpstreamSpec, scope, scopeName string) bool {
	names := []string{scope}
	if scopeName != "" {
		names = append(names, scopeName)
	}
	matches := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return model.MatchPattern(p, name) })
		})
	}
	include := spec.Namespaces.Include
	if spec.Kubernetes != nil && model.IsSystemNamespace(scope) {
		include = slices.DeleteFunc(slices.Clone(include), func(p string) bool { return !strings.HasPrefix(p, model.SystemPrefix) })
		return matches(include) && !matches(spec.Namespaces.Exclude)
	}
	return (len(include) == 0 || matches(include)) && !matches(spec.Namespaces.Exclude)
}

// plainName is the name of a service here, if no other one has it.
func (u *upstream) plainName(k model.UpstreamKey) string {
	if u.object.Spec.Naming == v1alpha1.NamingGimbal {
		return gimbalName(u.name, strings.ToLower(k.Name))
	}
	name := u.name + "-" + strings.ToLower(k.Name)
	if len(name) > maxName {
		return u.hashedName(k)
	}
	return name
}

// hashedName is a name that no other service has: it ends with a hash of the whole key.
func (u *upstream) hashedName(k model.UpstreamKey) string {
	name, end := u.name+"-"+strings.ToLower(k.Name), "-"+digest(u.name, k.Scope, k.Name)
	return strings.TrimRight(name[:min(len(name), maxName-len(end))], "-.") + end
}

// choose finds the name of a service in a namespace: the one that it has, else the plain one, else the hashed one. It says why
// there is none.
func (m *Mirror) choose(u *upstream, e *service) (snapshot.Name, *model.UpstreamRefusal) {
	plain := snapshot.Name{Namespace: e.namespace, Name: u.plainName(e.key)}
	hashed := snapshot.Name{Namespace: e.namespace, Name: u.hashedName(e.key)}
	if faults := validation.IsDNS1035Label(plain.Name); len(faults) > 0 {
		return snapshot.Name{}, &model.UpstreamRefusal{Reason: model.RefusedName, Message: "no Service can have the name " + strconv.Quote(plain.Name) + ": " + faults[0]}
	}
	me := owner{u.name, e.key}
	has := func(n snapshot.Name) bool {
		return m.owners[n] == me && !m.isForeign(n) && (n == plain || n == hashed || n == e.guessed && n.Namespace == e.namespace)
	}
	had := func(n snapshot.Name) bool {
		o := m.storedOf(n)
		return m.free(n, me) && (o == me || o == owner{upstream: u.name})
	}
	may := func(n snapshot.Name) bool {
		return m.free(n, me) && m.storedOf(n) == owner{} && (n != plain || !m.isOthers(u, plain.Name))
	}
	for _, name := range []struct {
		is  func(snapshot.Name) bool
		all []snapshot.Name
	}{{has, []snapshot.Name{e.name}}, {had, []snapshot.Name{plain, hashed}}, {may, []snapshot.Name{plain, hashed}}} {
		if i := slices.IndexFunc(name.all, name.is); i >= 0 {
			return name.all[i], nil
		}
	}
	return snapshot.Name{}, &model.UpstreamRefusal{
		Reason:  model.RefusedNameTaken,
		Message: "Service " + plain.String() + " exists and was not created by Fairlead: rename or delete it",
	}
}

// isOthers says whether a plain name may be that of a service of another upstream, whose name is longer: "prod-eu-shop" of "prod-eu"
// is not for "prod". Gimbal's names are as they are.
func (m *Mirror) isOthers(u *upstream, name string) bool {
	if u.object.Spec.Naming == v1alpha1.NamingGimbal {
		return false
	}
	for i, c := range name {
		if c == '-' && i > len(u.name) && m.upstreams[name[:i]] != nil {
			return true
		}
	}
	return false
}

// selects says whether the spec still selects a service.
func (u *upstream) selects(e *service) bool {
	return Selects(&u.object.Spec, e.key.Scope, e.from.ScopeName)
}

// selectsAlike says whether two specs select the same services.
func selectsAlike(a, b *v1alpha1.UpstreamSpec) bool {
	projects := func(s *v1alpha1.UpstreamSpec) []string {
		if s.OpenStack == nil {
			return nil
		}
		return s.OpenStack.Projects
	}
	return slices.Equal(a.Namespaces.Include, b.Namespaces.Include) && slices.Equal(a.Namespaces.Exclude, b.Namespaces.Exclude) &&
		slices.Equal(projects(a), projects(b)) && reflect.DeepEqual(a.Services, b.Services)
}
