package explain

import "slices"

// OfOther is an IngressRoute that has the request's host, and whose class is another controller's.
type OfOther struct {
	Source
	Class string `json:"class"`
}

// ofOthers notes the first of them, sorted.
func (x *explainer) ofOthers(host string) {
	if x.world.OfOthers == nil {
		return
	}
	all := x.world.OfOthers(host)
	slices.SortFunc(all, func(a, b OfOther) int { return a.Compare(b.Object) })
	for _, o := range all[:min(len(all), maxSources)] {
		o.Source = x.place(o.Source)
		x.e.OfOthers = append(x.e.OfOthers, o)
	}
	x.e.OfOthersMore = len(all) - len(x.e.OfOthers)
}
