package translate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate/certificatetest"
)

// A pinned certificate and a pinned bundle of authorities follow their resources though
// nobody else asks for them, and can be pinned long after the last one did.
func TestPinnedCertificatesFollowTheirSecrets(t *testing.T) {
	s, tr := tlsWorld(t)
	const id, trust = model.CertificateID("team/own"), model.AuthorityID("Secret/team/trust")
	secret := func(name string) *corev1.Secret {
		o := certificatetest.Secret(t, "team", name, "*.example.com")
		o.Data[snapshot.AuthorityKey] = o.Data[snapshot.CertificateKey]
		return o
	}
	published := func(o *corev1.Secret) bool {
		c := tr.result().Certificates[id]
		return c != nil && c.Chain == string(o.Data[snapshot.CertificateKey])
	}
	trusted := func(o *corev1.Secret) bool {
		a := tr.result().Authorities[trust]
		return a != nil && a.PEM == string(o.Data[snapshot.AuthorityKey])
	}
	pins := Pins{Certificates: []model.CertificateID{id}, Authorities: []model.AuthorityID{trust}}
	unpin := tr.Pin(pins)
	root := snapshot.Key{Kind: snapshot.KindIngressRoute, Name: snapshot.Name{Namespace: "team", Name: "root-0"}}
	s.Delete(root)
	tr.Apply(s, []snapshot.Key{root})

	renewed, authorities := secret("own"), secret("trust")
	tr.Apply(s, setAll(t, s, renewed, authorities))
	if !published(renewed) || !trusted(authorities) {
		t.Error("what is pinned does not follow its Secret")
	}
	again := tr.Pin(pins)
	tr.Apply(s, nil)
	unpin()
	tr.Apply(s, nil)
	if !published(renewed) || !trusted(authorities) {
		t.Error("one of two sets of pins does not keep a thing in use")
	}
	again()
	tr.Apply(s, nil)
	if tr.result().Certificates[id] != nil || tr.result().Authorities[trust] != nil {
		t.Error("what is pinned no more is there still")
	}

	renewed, authorities = secret("own"), secret("trust")
	tr.Apply(s, setAll(t, s, renewed, authorities))
	tr.Pin(pins)
	tr.Apply(s, nil)
	if !published(renewed) || !trusted(authorities) {
		t.Error("what was renewed while nobody asked for it cannot be pinned")
	}
	for _, name := range []string{"own", "trust"} {
		k := snapshot.Key{Kind: snapshot.KindSecret, Name: snapshot.Name{Namespace: "team", Name: name}}
		s.Delete(k)
		tr.Apply(s, []snapshot.Key{k})
	}
	if tr.result().Certificates[id] != nil || tr.result().Authorities[trust] != nil {
		t.Error("what is pinned stands without its Secret")
	}
}
