package contour

import (
	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

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
