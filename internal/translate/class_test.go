package translate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/status"
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
		s := snapshot.New()
		o := &contourv1beta1.IngressRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: c.annotations}}
		if _, err := s.Set(o); err != nil {
			t.Fatal(err)
		}
		tr, _ := Full(input.Config{}, s)
		if ours := len(tr.Others()) == 0; ours != c.ours {
			t.Errorf("%v: ours %v, want %v", c.annotations, ours, c.ours)
		}
	}
}

func TestOtherReleasesOfTheGatewayAPIAreTold(t *testing.T) {
	for version, want := range map[string]string{
		"v1.6.3": "True SupportedVersion", "v1.6.0-rc.1": "True SupportedVersion", "v1.6": "True SupportedVersion", "v1.6-dev": "True SupportedVersion",
		"v1.5.1": "False UnsupportedVersion", "v1.60.0": "False UnsupportedVersion", "x": "False UnsupportedVersion",
	} {
		if c := status.SupportedVersion(version, 3); string(c.Status)+" "+c.Reason != want || c.ObservedGeneration != 3 {
			t.Errorf("%s: %+v, want %s", version, c, want)
		}
	}
}
