package kube

import (
	"slices"
	"strings"

	"fairlead.dev/api/v1alpha1"
)

// maxNamespaced is up to how many namespaces are followed one by one. More are filtered from lists of all namespaces.
const maxNamespaced = 16

// systemPrefix begins the names of a cluster's own namespaces.
const systemPrefix = "kube-"

// selection selects namespaces.
type selection struct {
	include, exclude []string
}

func newSelection(n v1alpha1.UpstreamNamespaces) selection {
	return selection{include: n.Include, exclude: n.Exclude}
}

// has says whether a namespace is selected.
func (s selection) has(namespace string) bool {
	matches := func(pattern string) bool { return matchPattern(pattern, namespace) }
	if slices.ContainsFunc(s.exclude, matches) {
		return false
	}
	if strings.HasPrefix(namespace, systemPrefix) {
		return slices.ContainsFunc(s.include, func(p string) bool { return strings.HasPrefix(p, systemPrefix) && matches(p) })
	}
	return len(s.include) == 0 || slices.ContainsFunc(s.include, matches)
}

// scopes are the namespaces to follow one by one, or all of them as one: "". A few exact names are followed one by one,
// so that credentials need no right to list other namespaces.
func (s selection) scopes() []string {
	var scopes []string
	for _, name := range s.include {
		if strings.Contains(name, "*") {
			return []string{""}
		}
		if s.has(name) && !slices.Contains(scopes, name) {
			scopes = append(scopes, name)
		}
	}
	if len(scopes) == 0 || len(scopes) > maxNamespaced {
		return []string{""}
	}
	slices.Sort(scopes)
	return scopes
}

// matchPattern matches a name with a pattern in which "*" stands for any characters.
func matchPattern(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(name, first) {
		return false
	}
	name = name[len(first):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, last)
}
