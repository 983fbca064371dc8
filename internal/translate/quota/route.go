package quota

import (
	"fmt"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// Routes are the HTTPRoutes, GRPCRoutes and IngressRoutes whose annotations ask for series of their own.
type Routes struct{ *Quota[model.Object] }

// NewRoutes adds them to a graph.
func NewRoutes(g *memo.Graph, in *input.Tables) Routes {
	r := Routes{New(g, "series of a route", in.Config.MeasuredRoutes, model.Object.Compare)}
	claim := func(c *memo.Context, kind snapshot.Kind, n snapshot.Name, annotations map[string]string, created int64) {
		if field.Measured(annotations) {
			r.Claim(c, n.Namespace, input.Object(kind, n), created)
		}
	}
	memo.NewScan(g, "HTTPRoutes: series", in.HTTPRoutes, func(c *memo.Context, n snapshot.Name, o *gatewayv1.HTTPRoute) {
		claim(c, snapshot.KindHTTPRoute, n, o.Annotations, o.CreationTimestamp.Unix())
	}, r.Puts())
	memo.NewScan(g, "GRPCRoutes: series", in.GRPCRoutes, func(c *memo.Context, n snapshot.Name, o *gatewayv1.GRPCRoute) {
		claim(c, snapshot.KindGRPCRoute, n, o.Annotations, o.CreationTimestamp.Unix())
	}, r.Puts())
	memo.NewScan(g, "IngressRoutes: series", in.IngressRoutes, func(c *memo.Context, n snapshot.Name, o *contourv1beta1.IngressRoute) {
		if in.Config.IsOurs(o) {
			claim(c, snapshot.KindIngressRoute, n, o.Annotations, o.CreationTimestamp.Unix())
		}
	}, r.Puts())
	return r
}

// Has says whether a route has series of its own, by its annotations. The note says why it has none although it asks for them.
func (r Routes) Has(c *memo.Context, route model.Object, annotations map[string]string, created int64) (has bool, note string) {
	switch {
	case !field.Measured(annotations):
		return false, ""
	case r.Granted(c, route.Namespace, route, created):
		return true, ""
	}
	return false, fmt.Sprintf("metadata.annotations[%s]: no series of its own: more than %d routes ask for them, and older ones of namespace %s have its share", v1alpha1.AnnotationMetrics, r.bound, route.Namespace)
}
