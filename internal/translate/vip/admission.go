package vip

import "fairlead.dev/internal/translate/pool"

// keepsIn reports whether owners of a namespace may keep what a pool gave them.
func (a *assigner) keepsIn(p *poolBook, namespace string) bool {
	if !a.admits(p, namespace) {
		// It is not known whom a selector means that cannot be read.
		var unread bool
		pool.SelectorProblem(p.Namespaces, "", func(string, string) { unread = true })
		return unread
	}
	return true
}

func (a *assigner) admits(p *poolBook, namespace string) bool {
	if p.Namespaces == nil {
		return true
	}
	key := [2]string{p.Name, namespace}
	is, known := a.admitted[key]
	if !known {
		is = pool.Matches(p.Namespaces, a.labels(namespace))
		a.admitted[key] = is
	}
	return is
}
