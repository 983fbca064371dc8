package translate

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate/certificatetest"
	"fairlead.dev/internal/translate/input"
)

// tlsWorld is a root with a certificate of its own and one with a delegated certificate.
func tlsWorld(t *testing.T) (*snapshot.Snapshot, *Translator) {
	t.Helper()
	s := snapshot.New()
	tr := New(input.Config{})
	secret := func(namespace, name string) *corev1.Secret {
		return certificatetest.Secret(t, namespace, name, "*.example.com")
	}
	objects := []metav1.Object{webService(), secret("team", "own"), secret("certs", "shared"), &contourv1beta1.TLSCertificateDelegation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "certs", Name: "all"},
		Spec: contourv1beta1.TLSCertificateDelegationSpec{
			Delegations: []contourv1beta1.CertificateDelegation{{SecretName: "shared", TargetNamespaces: []string{"team"}}},
		},
	}}
	for i, name := range []string{"own", "certs/shared"} {
		o := rootOf(delegating(fmt.Sprintf("root-%d", i), contourv1beta1.Route{Match: "/", Services: []contourv1beta1.Service{{Name: "web", Port: 80}}}),
			fmt.Sprintf("host-%d.example.com", i))
		o.Spec.VirtualHost.TLS = &contourv1beta1.TLS{SecretName: name}
		objects = append(objects, o)
	}
	tr.Apply(s, setAll(t, s, objects...))
	for _, name := range []string{"root-0", "root-1"} {
		if got := statusOf(t, tr, name); got.Description != "valid IngressRoute" {
			t.Fatalf("%s: %+v", name, got)
		}
	}
	return s, tr
}

// size is how many things changed, statuses apart.
func size(c Changes) int {
	return len(c.Listeners) + len(c.VirtualHosts) + len(c.Certificates) + len(c.Authorities) + len(c.TLSHosts) + len(c.Groups) + len(c.Sets) + len(c.Views)
}

// TestRenewal holds that a renewed certificate changes that certificate and nothing else.
func TestRenewal(t *testing.T) {
	s, tr := tlsWorld(t)
	o := certificatetest.Secret(t, "certs", "shared", "*.example.com")
	c := tr.Apply(s, setAll(t, s, o))
	if len(c.Certificates) != 1 || size(c) != 1 || len(c.Statuses) != 0 {
		t.Errorf("%d certificates of %d changes, and %d statuses", len(c.Certificates), size(c), len(c.Statuses))
	}
	if c = tr.Apply(s, setAll(t, s, o)); !c.Empty() {
		t.Errorf("the same again: %+v", c)
	}
}

// TestExpiry holds that time alone is said once, when a certificate's has come to its end.
func TestExpiry(t *testing.T) {
	s, tr := tlsWorld(t)
	tell := func(now time.Time) Changes {
		s.Now = now
		return tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindTime}})
	}
	end := tr.certificates.Certificates.Get(tr.graph.Peek(), snapshot.Name{Namespace: "team", Name: "own"}).Certificate.NotAfter
	for _, step := range []struct {
		now      time.Time
		statuses int
	}{{end.Add(-time.Hour), 0}, {end, 0}, {end.Add(time.Minute), 2}, {end.Add(time.Hour), 0}, {end.Add(-time.Hour), 2}} {
		if c := tell(step.now); len(c.Statuses) != step.statuses || size(c) != 0 {
			t.Errorf("at %s: %d statuses and %d other changes, want %d statuses", step.now, len(c.Statuses), size(c), step.statuses)
		}
	}
}

// TestDelegationThatEnds holds that a certificate is not shown any more once its namespace
// takes it back, and that nobody else is looked at.
func TestDelegationThatEnds(t *testing.T) {
	s, tr := tlsWorld(t)
	k := snapshot.Key{Kind: snapshot.KindTLSCertificateDelegation, Name: snapshot.Name{Namespace: "certs", Name: "all"}}
	s.Delete(k)
	c := tr.Apply(s, []snapshot.Key{k})
	host := model.HostKey{Listener: "https-443", Host: "host-1.example.com"}
	if h := c.TLSHosts[host]; h == nil || len(h.Certificates) != 0 || len(c.TLSHosts) != 1 || len(c.VirtualHosts) != 2 || len(c.Certificates) != 1 || len(c.Statuses) != 1 {
		t.Errorf("%+v", c)
	}
	if got := statusOf(t, tr, "root-0"); got.CurrentStatus != contourv1beta1.StatusValid {
		t.Errorf("the other root: %+v", got)
	}
	for _, r := range tr.result().VirtualHosts[model.HostKey{Listener: "http-80", Host: host.Host}].Routes {
		if r.Respond == nil || r.Respond.Status != 503 {
			t.Errorf("in clear text: %+v", r)
		}
	}
}
