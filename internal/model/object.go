package model

import (
	"cmp"
	"strconv"
	"strings"
)

// Object names a resource of the API that said something: the owner of a route,
// the bearer of a status. An object without a name stands for all of its kind, in its
// namespace if it has one; SharingServices and SharingIngressRoutes stand for some.
type Object struct {
	Kind      string `json:"kind"`                // as in the manifest: "HTTPRoute"
	Namespace string `json:"namespace,omitempty"` // empty for cluster-scoped kinds
	Name      string `json:"name"`
}

// String is "Kind namespace/name", or "Kind name" without a namespace: what objects are known
// by between machines and in commands. Words says it to people.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Key is "Kind/namespace/name", or "Kind/name" without a namespace: how the names of an owner's routes begin, and what its series are
// named by.
func (o Object) Key() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Describe is String for people, who are told in words of objects that stand for several.
func (o Object) Describe() string {
	if key, is := o.ShareKey(); is {
		return "the Services that share " + strconv.Quote(key) + " of namespace " + o.Namespace
	}
	switch {
	case o.Name != "":
		return o.String()
	case o == SharingIngressRoutes():
		return "the root IngressRoutes that share an address"
	case o.Namespace != "":
		return "all " + o.Kind + "s of " + o.Namespace
	}
	return "all " + o.Kind + "s"
}

// Compare orders objects by kind, namespace and name.
func (o Object) Compare(p Object) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), cmp.Compare(o.Namespace, p.Namespace), cmp.Compare(o.Name, p.Name))
}

const (
	serviceKind = "Service"
	// sharePrefix begins the name of an owner that is several Services. Names of Kubernetes have
	// no "=".
	sharePrefix = "share-vip="
)

// SharingIngressRoutes is the owner that root IngressRoutes without addresses of their own are together.
func SharingIngressRoutes() Object { return Object{Kind: "IngressRoute"} }

// SharingServices is the owner that the Services with a key (fairlead.dev/share-vip) are together.
func SharingServices(namespace, key string) Object {
	return Object{Kind: serviceKind, Namespace: namespace, Name: sharePrefix + key}
}

// ShareKey is the key of an owner that SharingServices made.
func (o Object) ShareKey() (key string, is bool) {
	if o.Kind != serviceKind {
		return "", false
	}
	return strings.CutPrefix(o.Name, sharePrefix)
}
