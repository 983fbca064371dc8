package translate

import (
	"slices"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// classAnnotations say whose an IngressRoute is; the first that is there counts, as in Contour.
var classAnnotations = [...]string{"contour.heptio.com/ingress.class", "projectcontour.io/ingress.class", "kubernetes.io/ingress.class"}

// OfOthers are the IngressRoutes of a snapshot that are another controller's, sorted.
func OfOthers(c Config, s *snapshot.Snapshot) (others []model.Object) {
	c = c.withDefaults()
	for n, o := range s.IngressRoutes {
		if !c.isOurs(o) {
			others = append(others, ingressOwner(n))
		}
	}
	slices.SortFunc(others, model.Object.Compare)
	return others
}

// classOf is the class that an IngressRoute's annotations name; empty when none does, or the first one is empty.
func classOf(annotations map[string]string) string {
	for _, name := range classAnnotations {
		if class, there := annotations[name]; there {
			return class
		}
	}
	return ""
}

// isOurs says that an IngressRoute is ours: without a class, or with ours. Another controller's does
// not exist for us: it has no host, no status, and nobody delegates to it.
func (c Config) isOurs(o *contourv1beta1.IngressRoute) bool {
	class := classOf(o.Annotations)
	return class == "" || class == c.IngressClass
}

// ingressRoute is an IngressRoute that is ours.
func (t *contourTables) ingressRoute(c *memo.Context, n snapshot.Name) *contourv1beta1.IngressRoute {
	o := t.in.ingressRoutes.Get(c, n)
	if o == nil || !t.in.config.isOurs(o) {
		return nil
	}
	return o
}

// classText says that an IngressRoute is another controller's; empty when it is ours, or not there.
func (t *contourTables) classText(c *memo.Context, n snapshot.Name) string {
	if class := t.others.Get(c, n); class != "" {
		return ": it has class " + quote(class) + " and is another controller's"
	}
	return ""
}

// OfOthers counts the IngressRoutes that are another controller's.
func (t *Translator) OfOthers() (n int) {
	for range t.contour.others.All() {
		n++
	}
	return n
}

// OthersClass is the class of an IngressRoute that is another controller's; empty of any other.
func (t *Translator) OthersClass(n snapshot.Name) string {
	return t.contour.others.Get(t.graph.Peek(), n)
}
