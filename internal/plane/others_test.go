package plane

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

func ofOther(name string) *contourv1beta1.IngressRoute {
	return &contourv1beta1.IngressRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{"kubernetes.io/ingress.class": "internal"}},
		Spec: contourv1beta1.IngressRouteSpec{
			VirtualHost: &contourv1beta1.VirtualHost{Fqdn: name + ".example"},
			Routes:      []contourv1beta1.Route{{Match: "/", Services: []contourv1beta1.Service{{Name: "app", Port: 80}}}},
		},
	}
}

// The log says once that there are IngressRoutes of another class, and not again for each that comes.
func TestOfOthersAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	s := snapshot.New()
	l := &loop{plane: &Plane{config: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}}, translator: translate.New(translate.Config{})}
	l.tellOfOthers()
	if log.Len() > 0 {
		t.Errorf("there are none: %s", log.String())
	}
	for _, name := range []string{"a", "b"} {
		key, err := s.Set(ofOther(name))
		if err != nil {
			t.Fatal(err)
		}
		l.translator.Apply(s, []snapshot.Key{key})
		l.tellOfOthers()
	}
	if got := log.String(); strings.Count(got, "IngressRoutes of other classes are not ours") != 1 || !strings.Contains(got, "count=1") {
		t.Errorf("the log has %s", got)
	}
}

// IngressRoutes of another class have no status; the plane's console counts them, and says of their host whose it is.
func TestOfOthersAreShown(t *testing.T) {
	r := newRig(t)
	r.create(ofOther("app"))
	p := r.plane("one").awaitReady()
	request, err := explain.NewRequest(explain.Options{URL: "http://app.example/"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is shown", func() error {
		status := p.Status(t.Context())
		e, err := p.Explain(t.Context(), request)
		if err != nil {
			return err
		}
		if status.OfOthers != 1 || len(status.Routes) != 0 || len(e.OfOthers) != 1 || e.OfOthers[0].Name != "app" || e.OfOthers[0].Class != "internal" {
			return fmt.Errorf("there are %d, and explain says %+v", status.OfOthers, e.OfOthers)
		}
		return nil
	})
}
