package kube

import (
	"slices"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

// maxNamespaced is up to how many namespaces are followed one by one. More are filtered from lists of all namespaces.
const maxNamespaced = 16

// selection selects namespaces.
type selection struct {
	include, exclude []string
}

func newSelection(n v1alpha1.UpstreamNamespaces) selection {
	return selection{include: n.Include, exclude: n.Exclude}
}

// has says whether a namespace is selected.
func (s selection) has(namespace string) bool {
	matches := func(pattern string) bool { return model.MatchPattern(pattern, namespace) }
	if slices.ContainsFunc(s.exclude, matches) {
		return false
	}
	if model.IsSystemNamespace(namespace) {
		return slices.ContainsFunc(s.include, func(p string) bool { return strings.HasPrefix(p, model.SystemPrefix) && matches(p) })
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
