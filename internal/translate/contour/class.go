package contour

import (
	"slices"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// OfOthers are the IngressRoutes of a snapshot that are another controller's, sorted.
func OfOthers(c input.Config, s *snapshot.Snapshot) (others []model.Object) {
	c = c.WithDefaults()
	for n, o := range s.IngressRoutes {
		if !c.IsOurs(o) {
			others = append(others, input.Object(snapshot.KindIngressRoute, n))
		}
	}
	slices.SortFunc(others, model.Object.Compare)
	return others
}

// ingressRoute is an IngressRoute that is ours.
func (t *Tables) ingressRoute(c *memo.Context, n snapshot.Name) *contourv1beta1.IngressRoute {
	o := t.in.IngressRoutes.Get(c, n)
	if o == nil || !t.in.Config.IsOurs(o) {
		return nil
	}
	return o
}

// classText says that an IngressRoute is another controller's; empty when it is ours, or not there.
func (t *Tables) classText(c *memo.Context, n snapshot.Name) string {
	if class := t.Others.Get(c, n); class != "" {
		return ": it has class " + field.Quote(class) + " and is another controller's"
	}
	return ""
}
