package input

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
)

// TestTheFirstClassAnnotationCounts holds that annotations behind the first one mean nothing, as in Contour 0.15
// (internal/dag/annotations.go), also where the first one is empty.
func TestTheFirstClassAnnotationCounts(t *testing.T) {
	const contourName, project, kubernetes = "contour.heptio.com/ingress.class", "projectcontour.io/ingress.class", "kubernetes.io/ingress.class"
	for _, c := range []struct {
		annotations map[string]string
		ours        bool
	}{
		{nil, true},
		{map[string]string{kubernetes: "contour"}, true},
		{map[string]string{kubernetes: "nginx"}, false},
		{map[string]string{kubernetes: ""}, true},
		{map[string]string{contourName: "", kubernetes: "nginx"}, true},
		{map[string]string{project: "", kubernetes: "nginx"}, true},
		{map[string]string{contourName: "nginx", kubernetes: ""}, false},
		{map[string]string{contourName: "contour", project: "nginx", kubernetes: "nginx"}, true},
	} {
		config := Config{}.WithDefaults()
		o := &contourv1beta1.IngressRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: c.annotations}}
		if ours := config.IsOurs(o); ours != c.ours {
			t.Errorf("%v: ours %v, want %v", c.annotations, ours, c.ours)
		}
	}
}
