package mirror

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

const (
	maxName    = validation.DNS1035LabelMaxLength // of a Service
	hashLength = 10                               // hexadecimal digits that end names: 40 bits
)

// Namespace is the namespace here of a namespace or project of an upstream. Scope is its name or ID, and scopeName the name of a
// project, which may be empty.
func Namespace(spec *v1alpha1.UpstreamSpec, scope, scopeName string) string {
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
	if spec.Kubernetes != nil && strings.HasPrefix(scope, systemPrefix) {
		include = slices.DeleteFunc(slices.Clone(include), func(p string) bool { return !strings.HasPrefix(p, systemPrefix) })
		return matches(include) && !matches(spec.Namespaces.Exclude)
	}
	return (len(include) == 0 || matches(include)) && !matches(spec.Namespaces.Exclude)
}

// systemPrefix begins the names of a cluster's own namespaces. Only patterns that begin like this include them.
const systemPrefix = "kube-"

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

// digest is a hash of strings, of which none is a part of another one's.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// choose finds the name of a service in a namespace: the one that it has, else the plain one, else the hashed one. It says why
// there is none.
func (m *Mirror) choose(u *upstream, e *service) (snapshot.Name, *model.UpstreamRefusal) {
	plain := snapshot.Name{Namespace: e.namespace, Name: u.plainName(e.key)}
	hashed := snapshot.Name{Namespace: e.namespace, Name: u.hashedName(e.key)}
	if faults := validation.IsDNS1035Label(plain.Name); len(faults) > 0 {
		return snapshot.Name{}, &model.UpstreamRefusal{Reason: model.RefusedName, Message: "no Service can have the name " + plain.Name + ": " + faults[0]}
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

// isForeign says whether a Service of the name is stored that is not ours.
func (m *Mirror) isForeign(n snapshot.Name) bool {
	o := m.services[n]
	return o != nil && m.ownerOf(o) == ""
}

// free says whether a name is no other service's in effect, and no other Service's.
func (m *Mirror) free(n snapshot.Name, me owner) bool {
	o, taken := m.owners[n]
	return !m.isForeign(n) && (!taken || o == me)
}

// storedOf is the service that a stored Service of the name is of, without a key if the Service does not tell it; zero:
// none, or one that goes.
func (m *Mirror) storedOf(n snapshot.Name) owner {
	o := m.services[n]
	if o == nil {
		return owner{}
	}
	by := m.ownerOf(o)
	if by == "" || m.upstreams[by] == nil && m.isUnused(n) {
		return owner{}
	}
	k, _ := keyOf(o)
	return owner{by, k}
}
