package plane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/plane/status"
)

// tlsSecret is a Secret with a certificate for a host.
func tlsSecret(t *testing.T, name, host string) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels()}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		},
	}
}

// A ListenerSet adds an HTTPS listener to a Gateway; its status and the Gateway's are taken
// by the API, and follow its certificate.
func TestListenerSetIsServed(t *testing.T) {
	r := newRig(t)
	g := gateway()
	from := gatewayv1.NamespacesFromSame
	g.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: &from}}
	set := &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "more"}}
	set.Spec.ParentRef.Name = "edge"
	set.Spec.Listeners = []gatewayv1.ListenerEntry{
		{Name: "plain", Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: ptr(gatewayv1.Hostname("set.example"))},
		{
			Name: "secure", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, Hostname: ptr(gatewayv1.Hostname("set.example")),
			TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "set"}}},
		},
	}
	route := httpRoute("app", "set.example", "app")
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{Kind: ptr(gatewayv1.Kind("ListenerSet")), Name: "more"}}
	r.create(gatewayClass(), g, set, service("app"), slice("app", "10.1.0.1"), route)
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())

	entry := func(set *gatewayv1.ListenerSet, name gatewayv1.SectionName) (gatewayv1.ListenerEntryStatus, error) {
		for _, l := range set.Status.Listeners {
			if l.Name == name {
				return l, nil
			}
		}
		return gatewayv1.ListenerEntryStatus{}, fmt.Errorf("status has no listener %s", name)
	}
	await(r, set, "the set is programmed but for the certificate", func(s *gatewayv1.ListenerSet) error {
		plain, err := entry(s, "plain")
		if err != nil {
			return err
		}
		secure, err := entry(s, "secure")
		if err != nil {
			return err
		}
		if plain.AttachedRoutes != 1 || secure.AttachedRoutes != 1 {
			return fmt.Errorf("%d and %d routes are attached", plain.AttachedRoutes, secure.AttachedRoutes)
		}
		return errors.Join(
			conditionIs(s.Status.Conditions, "Accepted", metav1.ConditionTrue, "ListenersNotValid"),
			conditionIs(s.Status.Conditions, "Programmed", metav1.ConditionTrue, "Programmed"),
			conditionIs(plain.Conditions, "Programmed", metav1.ConditionTrue, "Programmed"),
			conditionIs(secure.Conditions, "ResolvedRefs", metav1.ConditionFalse, "InvalidCertificateRef"),
			conditionIs(secure.Conditions, "Programmed", metav1.ConditionFalse, "Invalid"))
	})
	await(r, g, "the Gateway counts the set", func(g *gatewayv1.Gateway) error {
		if n := g.Status.AttachedListenerSets; n == nil || *n != 1 {
			return fmt.Errorf("attached sets: %v", n)
		}
		return conditionIs(g.Status.Conditions, "Programmed", metav1.ConditionTrue, "Programmed")
	})
	await(r, gatewayClass(), "the class says what is supported", func(c *gatewayv1.GatewayClass) error {
		if len(c.Status.SupportedFeatures) == 0 {
			return errors.New("it says nothing")
		}
		return conditionIs(c.Status.Conditions, "SupportedVersion", metav1.ConditionTrue, "SupportedVersion")
	})

	r.create(tlsSecret(t, "set", "set.example"))
	await(r, set, "the set is programmed", func(s *gatewayv1.ListenerSet) error {
		secure, err := entry(s, "secure")
		if err != nil {
			return err
		}
		return errors.Join(
			conditionIs(s.Status.Conditions, "Accepted", metav1.ConditionTrue, "Accepted"),
			conditionIs(secure.Conditions, "ResolvedRefs", metav1.ConditionTrue, "ResolvedRefs"),
			conditionIs(secure.Conditions, "Programmed", metav1.ConditionTrue, "Programmed"))
	})
	await(r, route, "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
}

// What stands for a Gateway bears its labels and follows them; of somebody else's object
// nothing is changed.
func TestInfrastructureStandsForAGateway(t *testing.T) {
	r := newRig(t)
	g, other := gateway(), gateway()
	g.Spec.Infrastructure = &gatewayv1.GatewayInfrastructure{
		Labels: map[gatewayv1.LabelKey]gatewayv1.LabelValue{"team": "red"}, Annotations: map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue{"note": "one"},
	}
	other.Name = "other"
	other.Spec.Infrastructure = g.Spec.Infrastructure
	foreign := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other-fairlead"}}
	stands := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edge-fairlead"}}
	t.Cleanup(func() {
		for _, o := range []client.Object{foreign, stands} {
			_ = r.client.Delete(context.Background(), o) // gone already, mostly
		}
	})
	r.create(foreign, gatewayClass(), g, other)
	r.plane("one").awaitReady()
	is := func(team, note string) func(*corev1.ServiceAccount) error {
		return func(s *corev1.ServiceAccount) error {
			if s.Labels["team"] != team || s.Annotations["note"] != note || s.Labels[gatewayv1.GatewayNameLabelKey] != "edge" || len(s.OwnerReferences) != 1 {
				return fmt.Errorf("it is %+v", s.ObjectMeta)
			}
			return nil
		}
	}
	await(r, stands, "it stands", is("red", "one"))
	edit(r, g, func(g *gatewayv1.Gateway) { // the plane may write its status just now
		g.Spec.Infrastructure.Labels["team"] = "blue"
		g.Spec.Infrastructure.Annotations = nil
	})
	await(r, stands, "it follows", is("blue", ""))
	if err := reread(r, foreign); err != nil || len(foreign.Labels) != 0 {
		t.Errorf("somebody else's object is %v (%v)", foreign.Labels, err)
	}
	eventually(t, "the Gateway asks for nothing", func() error {
		if err := reread(r, g); err != nil {
			return err
		}
		g.Spec.Infrastructure = nil
		return r.client.Update(context.Background(), g)
	})
	eventually(t, "it goes", func() error {
		if err := reread(r, stands); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", errors.Join(errors.New("found"), err))
		}
		return nil
	})
}
