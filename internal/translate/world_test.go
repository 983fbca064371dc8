package translate

import (
	"crypto/elliptic"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// newObject returns an empty object of a kind.
func newObject(kind snapshot.Kind) metav1.Object {
	switch kind {
	case snapshot.KindAddressPool:
		return &v1alpha1.AddressPool{}
	case snapshot.KindBGPPeer:
		return &v1alpha1.BGPPeer{}
	case snapshot.KindBackendPolicy:
		return &v1alpha1.BackendPolicy{}
	case snapshot.KindClientPolicy:
		return &v1alpha1.ClientPolicy{}
	case snapshot.KindLoadBalancerPolicy:
		return &v1alpha1.LoadBalancerPolicy{}
	case snapshot.KindTLSRoute:
		return &gatewayv1.TLSRoute{}
	case snapshot.KindTCPRoute:
		return &gatewayv1.TCPRoute{}
	case snapshot.KindUDPRoute:
		return &gatewayv1.UDPRoute{}
	case snapshot.KindRoutePolicy:
		return &v1alpha1.RoutePolicy{}
	case snapshot.KindSecret:
		return &corev1.Secret{}
	case snapshot.KindConfigMap:
		return &corev1.ConfigMap{}
	case snapshot.KindMachine:
		return &v1alpha1.Machine{}
	case snapshot.KindNamespace:
		return &corev1.Namespace{}
	case snapshot.KindService:
		return &corev1.Service{}
	case snapshot.KindEndpointSlice:
		return &discoveryv1.EndpointSlice{}
	case snapshot.KindGatewayClass:
		return &gatewayv1.GatewayClass{}
	case snapshot.KindGateway:
		return &gatewayv1.Gateway{}
	case snapshot.KindHTTPRoute:
		return &gatewayv1.HTTPRoute{}
	case snapshot.KindGRPCRoute:
		return &gatewayv1.GRPCRoute{}
	case snapshot.KindBackendTLSPolicy:
		return &gatewayv1.BackendTLSPolicy{}
	case snapshot.KindListenerSet:
		return &gatewayv1.ListenerSet{}
	case snapshot.KindReferenceGrant:
		return &gatewayv1.ReferenceGrant{}
	case snapshot.KindIngressRoute:
		return &contourv1beta1.IngressRoute{}
	case snapshot.KindTLSCertificateDelegation:
		return &contourv1beta1.TLSCertificateDelegation{}
	}
	return nil
}

// readYAML puts every document into the snapshot.
func readYAML(t testing.TB, s *snapshot.Snapshot, text []byte) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(newLineReader(text))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			t.Fatal(err)
		}
		o := newObject(snapshot.Kind(meta.Kind))
		if o == nil {
			t.Fatalf("a document of kind %q", meta.Kind)
		}
		if err := yaml.UnmarshalStrict(document, o); err != nil {
			t.Fatalf("%s: %v", meta.Kind, err)
		}
		if secret, is := o.(*corev1.Secret); is {
			fillIn(t, secret.StringData)
			o = snapshot.Trim(secret, v1alpha1.SystemNamespace)
		}
		if config, is := o.(*corev1.ConfigMap); is {
			fillIn(t, config.Data)
			o = snapshot.TrimConfigMap(config)
		}
		if _, err := s.Set(o); err != nil {
			t.Fatal(err)
		}
	}
}

// namedPairs are the certificates that cases name, made when first named.
var namedPairs = map[string]map[string]string{}

// fillIn puts certificates and keys in the places of "CERTIFICATE name..." and "KEY name...":
// cases name them, since nobody can read them.
func fillIn(t testing.TB, data map[string]string) {
	t.Helper()
	for k, text := range data {
		what, names, _ := strings.Cut(text, " ")
		if what != "CERTIFICATE" && what != "KEY" {
			continue
		}
		if namedPairs[names] == nil {
			chain, key := pair(t, ecKey(t, elliptic.P256()), strings.Fields(names)...)
			namedPairs[names] = map[string]string{"CERTIFICATE": string(chain), "KEY": string(key)}
		}
		data[k] = namedPairs[names][what]
	}
}

// text is what a result says, for comparisons.
func text(tr *Translator) string { return tr.Desired().Text() }

// lineDiff shows where two texts part.
func lineDiff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	show := func(lines []string) string {
		return strings.Join(lines[max(0, min(i-3, len(lines))):min(len(lines), i+4)], "\n")
	}
	return "they part here\n--- want\n" + show(a) + "\n--- got\n" + show(b)
}
