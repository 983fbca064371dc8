package traffic

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
)

// By is what requests are grouped by.
type By string

// The groups of requests.
const (
	Routes     By = "routes"     // the resource that owns the route, such as "HTTPRoute/news/app"
	Hosts      By = "hosts"      // the virtual host
	Namespaces By = "namespaces" // of the owner
	Listeners  By = "listeners"
	Upstreams  By = "upstreams" // the Upstream that the group's Service comes from
	Frontends  By = "frontends" // of data planes, such as "tcp://192.0.2.1:443"
	Backends   By = "backends"  // of measured groups, with the group, and of frontends, with the frontend
)

// All are the groups there are, in the order in which people are told of them.
var All = []By{Routes, Hosts, Namespaces, Listeners, Upstreams, Frontends, Backends}

// OfNamespace says whether rows can be those of one namespace.
func (b By) OfNamespace() bool { return b != Upstreams && b != Frontends }

// Parse reads the name of a group.
func Parse(text string) (By, error) {
	if by := By(text); slices.Contains(All, by) {
		return by, nil
	}
	return "", fmt.Errorf("%q is none of routes, hosts, namespaces, listeners, upstreams, frontends and backends", text)
}

// None is the name of what belongs to nothing: requests for a host that no virtual host has, or that no route matches.
const None = "(none)"

// Owner is the resource that owns a route, by the route's name (model.Route): its kind, namespace and name. The parts are empty
// for a name of another form.
func Owner(route string) (kind, namespace, name string) {
	kind, rest, _ := strings.Cut(route, "/")
	namespace, rest, named := strings.Cut(rest, "/")
	if !named {
		return "", "", ""
	}
	name, _, _ = strings.Cut(rest, "/")
	return kind, namespace, name
}

// OwnerKey is the key of that resource (model.Object.Key), by which its series are named: how the name of the route begins. It is empty
// for a name of another form.
func OwnerKey(route string) string {
	kind, namespace, name := Owner(route)
	if kind == "" {
		return ""
	}
	return route[:len(kind)+len(namespace)+len(name)+2]
}

// name is the group of a counter.
func (b By) name(f *model.RequestFigures) string {
	name := ""
	switch b {
	case Routes:
		name = OwnerKey(f.Route)
	case Hosts:
		name = f.Host
	case Namespaces:
		_, name, _ = Owner(f.Route)
	case Listeners:
		name = string(f.Listener)
	}
	if name == "" {
		return None
	}
	return name
}

// sharedBy is the namespace whose share of the names of a group a counter's is; empty where names are of no namespace.
func (b By) sharedBy(f *model.RequestFigures) string {
	if b != Routes && b != Hosts {
		return ""
	}
	_, namespace, _ := Owner(f.Route)
	return namespace
}
