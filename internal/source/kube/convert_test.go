package kube

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/model"
)

func TestConvertService(t *testing.T) {
	port := func(name string, number int32, protocol corev1.Protocol, app string) corev1.ServicePort {
		p := corev1.ServicePort{Name: name, Port: number, Protocol: protocol}
		if app != "" {
			p.AppProtocol = &app
		}
		return p
	}
	http := []model.UpstreamPort{{Name: "http", Port: 80, Protocol: "TCP"}}
	for name, c := range map[string]struct {
		change func(o *corev1.Service)
		want   *service
	}{
		"ordinary": {func(*corev1.Service) {}, &service{ports: http}},
		"headless": {func(o *corev1.Service) { o.Spec.ClusterIP = "None" }, &service{ports: http}},
		"with a selector": {
			func(o *corev1.Service) {
				o.Spec.ClusterIP, o.Spec.Selector = "10.96.0.7", map[string]string{"app": "x"}
			},
			&service{ports: http},
		},
		"NodePort": {
			func(o *corev1.Service) { o.Spec.Type, o.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080 },
			&service{ports: http},
		},
		"LoadBalancer": {func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeLoadBalancer }, &service{ports: http}},
		"without ports": {
			func(o *corev1.Service) { o.Spec.Ports = nil },
			&service{},
		},
		"several ports": {
			func(o *corev1.Service) {
				o.Spec.Ports = []corev1.ServicePort{
					port("dns", 53, "UDP", ""), port("dns-tcp", 53, "TCP", ""), port("sctp", 7, "SCTP", ""), port("h2c", 80, "", "kubernetes.io/h2c"), port("bad", 81, "", "not valid"),
				}
			},
			&service{ports: []model.UpstreamPort{
				{Name: "dns", Port: 53, Protocol: "UDP"},
				{Name: "dns-tcp", Port: 53, Protocol: "TCP"},
				{Name: "sctp", Port: 7, Protocol: "SCTP"},
				{Name: "h2c", Port: 80, Protocol: "TCP", AppProtocol: "kubernetes.io/h2c"},
				{Name: "bad", Port: 81, Protocol: "TCP"},
			}},
		},
		"bad ports": {
			func(o *corev1.Service) {
				o.Spec.Ports = append(o.Spec.Ports, port("x", 0, "", ""), port("y", 65536, "", ""), port("z", 80, "", ""), port("http", 81, "", ""),
					port("dccp", 82, "DCCP", ""), port("A_B", 83, "", ""))
			},
			&service{ports: http, refused: []model.UpstreamRefusal{
				{Object: "port TCP/0 of Service a/one", Reason: model.RefusedPort, Message: "its number is not from 1 to 65535"},
				{Object: "port TCP/65536 of Service a/one", Reason: model.RefusedPort, Message: "its number is not from 1 to 65535"},
				{Object: "port TCP/80 of Service a/one", Reason: model.RefusedPort, Message: "another port has the same number"},
				{Object: "port TCP/81 of Service a/one", Reason: model.RefusedPort, Message: "another port has the same name"},
				{Object: "port DCCP/82 of Service a/one", Reason: model.RefusedProtocol, Message: "its protocol is neither TCP, UDP nor SCTP"},
				{Object: "port TCP/83 of Service a/one", Reason: model.RefusedPort, Message: `no port can have the name "A_B"`},
			}},
		},
		"ExternalName": {
			func(o *corev1.Service) {
				o.Spec.Type, o.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
			},
			&service{excluded: true, ports: []model.UpstreamPort{{Name: "http", Port: 80, Protocol: "TCP"}}, refused: []model.UpstreamRefusal{{
				Object: "Service a/one", Reason: model.RefusedExternalName, Message: "it is a name (example.org), which has no endpoints",
			}}},
		},
		"discovered by a Fairlead": {
			func(o *corev1.Service) { o.Labels = map[string]string{"fairlead.dev/upstream": "up07"} },
			&service{excluded: true, refused: []model.UpstreamRefusal{{
				Object: "Service a/one", Reason: model.RefusedLoop, Message: `it was itself discovered, from "up07" (label fairlead.dev/upstream)`,
			}}},
		},
		"discovered by Gimbal": {
			func(o *corev1.Service) { o.Labels = map[string]string{"gimbal.heptio.com/backend": "b"} },
			&service{excluded: true, refused: []model.UpstreamRefusal{{
				Object: "Service a/one", Reason: model.RefusedLoop, Message: `it was itself discovered, from "b" (label gimbal.heptio.com/backend)`,
			}}},
		},
		"discovered by a later Gimbal": {
			func(o *corev1.Service) { o.Labels = map[string]string{"gimbal.projectcontour.io/backend": ""} },
			&service{excluded: true, refused: []model.UpstreamRefusal{{
				Object: "Service a/one", Reason: model.RefusedLoop, Message: `it was itself discovered, from "" (label gimbal.projectcontour.io/backend)`,
			}}},
		},
		"labels and annotations of controllers": {
			func(o *corev1.Service) {
				o.Labels, o.Annotations = map[string]string{"app": "web", "mistio.io/x": "y"}, map[string]string{"note": "text"}
				for _, key := range []string{
					"argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id", "helm.sh/chart", "meta.helm.sh/release-name", "fluxcd.io/sync-checksum",
					"kustomize.toolkit.fluxcd.io/name", "getambassador.io/config", "istio.io/rev", "networking.istio.io/exportTo", "linkerd.io/inject",
					"external-dns.alpha.kubernetes.io/hostname", "external-dns.example.org/x", "cert-manager.io/issuer", "cloud.google.com/neg",
					"beta.cloud.google.com/x", "service.beta.azure.com/x", "eks.amazonaws.com/role-arn", "service.k8s.aws/stack",
				} {
					o.Labels[key], o.Annotations[key] = "x", "x"
				}
				o.Annotations["Meta.Helm.SH/release-name"] = "x"
			},
			&service{ports: http, labels: map[string]string{"app": "web", "mistio.io/x": "y"}, annotations: map[string]string{"note": "text"}},
		},
		"labels and annotations": {
			func(o *corev1.Service) {
				o.Labels = map[string]string{
					"app": "web", "app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "shop", "kubernetes.io/cluster-service": "true", "service.kubernetes.io/headless": "", "x.k8s.io/y": "z",
					"endpointslice.kubernetes.io/managed-by": "me", "fairlead.dev/other": "x", "gimbal.heptio.com/service": "x", "bad value": "x", "b": "not valid",
					"mykubernetes.io/x": "y",
				}
				o.Annotations = map[string]string{
					"contour.heptio.com/upstream-protocol.h2": "80", "kubectl.kubernetes.io/last-applied-configuration": "{}", "app.kubernetes.io/x": "y",
					"service.kubernetes.io/topology-mode": "Auto", "fairlead.dev/weights": "10.0.0.1=5", "example.org/large": strings.Repeat("x", 5000), "note": "text",
				}
			},
			&service{
				ports:       http,
				labels:      map[string]string{"app": "web", "app.kubernetes.io/name": "web", "mykubernetes.io/x": "y"},
				annotations: map[string]string{"contour.heptio.com/upstream-protocol.h2": "80", "note": "text"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newService("a/one")
			c.change(o)
			if got := convertService(o); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
	if got := convertService(newService("default/kubernetes")); got != nil {
		t.Errorf("default/kubernetes: %+v", got)
	}
	if got := convertService(newService("a/kubernetes")); got == nil {
		t.Error("a/kubernetes is left out")
	}
}

// What one object may have is bounded.
func TestConvertBounds(t *testing.T) {
	o := newService("a/one")
	o.Labels, o.Annotations = map[string]string{}, map[string]string{}
	for i := range 1000 {
		o.Labels[fmt.Sprintf("l%03d", i)] = "x"
		o.Annotations[fmt.Sprintf("a%03d", i)] = strings.Repeat("x", 1000)
	}
	for i := range 2000 {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "http", Port: int32(1000 + i)})
	}
	got := convertService(o)
	size := 0
	for k, v := range got.annotations {
		size += len(k) + len(v)
	}
	if len(got.labels) != maxLabels || got.labels["l000"] == "" || size > maxAnnotationBytes || got.annotations["a000"] == "" || len(got.ports) != 1 || len(got.refused) != maxRefusals || got.more != 1000-maxRefusals {
		t.Errorf("%d labels, %d bytes of annotations, %d ports, %d refusals and %d more", len(got.labels), size, len(got.ports), len(got.refused), got.more)
	}

	many := newSlice("a/one-1", "one")
	for i := range 1001 {
		many.Endpoints = append(many.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String()}})
	}
	if got := convertSlice(many); !got.excluded || len(got.refused) != 1 || got.refused[0].Message != "it has 1001 endpoints and 1 ports; at most 1000 and 100 are possible" {
		t.Errorf("excluded %t: %v", got.excluded, got.refused)
	}
}

func TestConvertSlice(t *testing.T) {
	yes, no := true, false
	zone, number, udp := "zone-a", int32(5353), corev1.ProtocolUDP
	name, app := "dns", "example.org/dns"
	ready := func(a string) model.UpstreamEndpoint {
		return model.UpstreamEndpoint{Address: netip.MustParseAddr(a), Ready: true, Serving: true}
	}
	http := []model.UpstreamPort{{Name: "http", Port: 8080, Protocol: "TCP"}}
	for title, c := range map[string]struct {
		change  func(o *discoveryv1.EndpointSlice)
		want    model.UpstreamSlice
		refused []model.UpstreamRefusal
	}{
		"ordinary": {func(*discoveryv1.EndpointSlice) {}, model.UpstreamSlice{Ports: http, Endpoints: []model.UpstreamEndpoint{ready("10.0.0.1")}}, nil},
		"IPv6": {
			func(o *discoveryv1.EndpointSlice) {
				o.AddressType = discoveryv1.AddressTypeIPv6
				o.Endpoints[0].Addresses = []string{"fd00::1"}
			},
			model.UpstreamSlice{Ports: http, Endpoints: []model.UpstreamEndpoint{ready("fd00::1")}},
			nil,
		},
		"conditions": {
			func(o *discoveryv1.EndpointSlice) {
				o.Endpoints = nil
				for i, conditions := range []discoveryv1.EndpointConditions{
					{Ready: &yes, Serving: &yes, Terminating: &no},
					{Ready: &no, Serving: &yes, Terminating: &yes},
					{Ready: &no, Serving: &no, Terminating: &yes},
					{Ready: &no},
					{Ready: &yes, Serving: &no}, // publishNotReadyAddresses
				} {
					o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, Conditions: conditions})
				}
			},
			model.UpstreamSlice{Ports: http, Endpoints: []model.UpstreamEndpoint{
				{Address: netip.MustParseAddr("10.0.0.1"), Ready: true, Serving: true},
				{Address: netip.MustParseAddr("10.0.0.2"), Serving: true, Terminating: true},
				{Address: netip.MustParseAddr("10.0.0.3"), Terminating: true},
				{Address: netip.MustParseAddr("10.0.0.4")},
				{Address: netip.MustParseAddr("10.0.0.5"), Ready: true},
			}},
			nil,
		},
		"zones and hints": {
			func(o *discoveryv1.EndpointSlice) {
				bad, node := "not valid", "node-1"
				o.Endpoints[0].Zone, o.Endpoints[0].NodeName = &zone, &node
				o.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "x"}
				o.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-a"}, {Name: "zone-b"}, {Name: ""}}}
				o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.2", "10.0.0.3"}, Zone: &bad})
			},
			model.UpstreamSlice{Ports: http, Endpoints: []model.UpstreamEndpoint{
				{Address: netip.MustParseAddr("10.0.0.1"), Ready: true, Serving: true, Zone: "zone-a", ForZones: []string{"zone-a", "zone-b"}},
				ready("10.0.0.2"),
			}},
			nil,
		},
		"ports": {
			func(o *discoveryv1.EndpointSlice) {
				// Two ports of a Service may have the same target.
				o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &udp, AppProtocol: &app},
					discoveryv1.EndpointPort{Port: &number, Protocol: &udp}, discoveryv1.EndpointPort{Name: &app})
			},
			model.UpstreamSlice{
				Ports: append(http[:1:1], model.UpstreamPort{Name: "dns", Port: 5353, Protocol: "UDP", AppProtocol: "example.org/dns"},
					model.UpstreamPort{Port: 5353, Protocol: "UDP"}),
				Endpoints: []model.UpstreamEndpoint{ready("10.0.0.1")},
			},
			[]model.UpstreamRefusal{{Object: "EndpointSlice a/one-1", Reason: model.RefusedPort, Message: `its port "example.org/dns" has no number`}},
		},
		"names": {
			func(o *discoveryv1.EndpointSlice) {
				o.AddressType = discoveryv1.AddressTypeFQDN
				o.Endpoints[0].Addresses = []string{"example.org"}
			},
			model.UpstreamSlice{},
			[]model.UpstreamRefusal{{Object: "EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "its endpoints are of type FQDN, which are no addresses"}},
		},
		"bad addresses": {
			func(o *discoveryv1.EndpointSlice) {
				for _, a := range []string{"", "10.0.0.256", "fd00::1", "0.0.0.0", "127.0.0.1", "224.0.0.1", "169.254.169.254"} {
					o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
				}
				o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{}, discoveryv1.Endpoint{Addresses: []string{"::ffff:10.0.0.2"}})
			},
			model.UpstreamSlice{Ports: http, Endpoints: []model.UpstreamEndpoint{ready("10.0.0.1"), ready("10.0.0.2")}},
			[]model.UpstreamRefusal{
				{Object: "endpoint  of EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "it is no address"},
				{Object: "endpoint 10.0.0.256 of EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "it is no address"},
				{Object: "endpoint fd00::1 of EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "its address is not of type IPv4"},
				{Object: "endpoint 0.0.0.0 of EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "no other machine reaches this address"},
				{Object: "endpoint 127.0.0.1 of EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "no other machine reaches this address"},
				{Object: "endpoint 224.0.0.1 of EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "no other machine reaches this address"},
				{Object: "endpoint 169.254.169.254 of EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "no other machine reaches this address"},
				{Object: "EndpointSlice a/one-1", Reason: model.RefusedNoAddress, Message: "an endpoint has no address"},
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			o := newSlice("a/one-1", "one", "10.0.0.1")
			c.change(o)
			got := convertSlice(o)
			c.want.Name = "one-1"
			if !got.slice.Same(c.want) || !reflect.DeepEqual(got.refused, c.refused) || got.service != "one" {
				t.Errorf("got  %+v\nwant %+v\nrefused %+v", got.slice, c.want, got.refused)
			}
		})
	}
	if got := convertSlice(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}); got != nil {
		t.Errorf("a slice of no service: %+v", got)
	}
}

// What is refused of a service and all its slices is bounded together, and the number of the rest is said.
func TestRefusalBounds(t *testing.T) {
	for name, c := range map[string]struct {
		ports, slices, endpoints int // that are refused
		said                     int
		last                     string
	}{
		"few":        {2, 2, 7, 16, "it is no address"},
		"many":       {2, 2, 8, 17, "2 more of its ports and endpoints are left out"},
		"ports":      {1000, 0, 0, 17, "984 more of its ports and endpoints are left out"},
		"all":        {17, 100, 50, 17, "5001 more of its ports and endpoints are left out"},
		"ports only": {16, 1, 1, 17, "1 more of its ports and endpoints are left out"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newService("a/one")
			o.Spec.Ports = nil
			for i := range c.ports {
				o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Port: int32(100_000 + i)})
			}
			parts := map[model.UpstreamKey]*slice{}
			for i := range c.slices {
				p := newSlice(fmt.Sprintf("a/s%03d", i), "one", slices.Repeat([]string{"bad"}, c.endpoints)...)
				parts[model.UpstreamKey{Scope: p.Namespace, Name: p.Name}] = convertSlice(p)
			}
			tab := newTable(time.Now)
			listed, listedParts := tab.add(""), tab.add("")
			tab.replaceServices(listed, map[model.UpstreamKey]*service{{Scope: "a", Name: "one"}: convertService(o)})
			tab.replaceSlices(listedParts, parts)
			got := tab.take().put[0].Refused
			if len(got) != c.said || got[len(got)-1].Message != c.last {
				t.Errorf("%d refusals; the last one is %+v", len(got), got[len(got)-1])
			}
		})
	}
}

// All texts that are kept count.
func TestBytes(t *testing.T) {
	long := strings.Repeat("x", 60)
	o := newService("a/" + long)
	o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "bad", Port: 70000})
	s := convertService(o)
	key := model.UpstreamKey{Scope: "a", Name: long}
	if want := int64(256 + 61 + 64 + len("http") + 64 + len(s.refused[0].Object) + len(s.refused[0].Message)); s.bytes(key) != want {
		t.Errorf("the service has %d bytes, want %d", s.bytes(key), want)
	}
	e := newSlice("a/"+long, "one", "10.0.0.1", "bad")
	e.Endpoints[0].Zone = &long
	p := convertSlice(e)
	if want := int64(256 + 2*61 + 3 + 64 + len("http") + 128 + 60 + 64 + len(p.refused[0].Object) + len(p.refused[0].Message)); p.bytes(key) != want {
		t.Errorf("the slice has %d bytes, want %d", p.bytes(key), want)
	}
}

// Names that Kubernetes cannot have are left out; the rest of the list is in effect.
func TestImpossibleNames(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		for _, name := range []string{
			"a/" + strings.Repeat("n", 254), strings.Repeat("n", 64) + "/x", "a/Upper", "a/b c", "a/..", "a.b/x", "a/", "/x", "a/" + strings.Repeat("n", 1<<16),
		} {
			f.put(newService(name), newSlice(name, "one", "10.0.0.2"))
		}
		f.put(newService("a/one"), newSlice("a/one-1", "one", "10.0.0.1"), newSlice("a/two-1", strings.Repeat("n", 1<<16), "10.0.0.1"))
		s := f.follow(t, nil)
		moment()
		want(t, "listed", s.took(), "replace a/one")
		want(t, "endpoints", s.endpoints("a/one"), "10.0.0.1")
		f.put(newService("a/"+strings.Repeat("m", 254)), newService("a/two"))
		moment()
		want(t, "watched", s.took(), "put a/two")
	})
}

// The time of the change is that of the slice that changed last.
func TestChangedTime(t *testing.T) {
	tab := newTable(time.Now)
	services, parts := tab.add(""), tab.add("")
	key := model.UpstreamKey{Scope: "a", Name: "one"}
	part := func(name, at string) *slice {
		o := newSlice("a/"+name, "one", "10.0.0.1")
		o.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": at}
		return convertSlice(o)
	}
	tab.replaceServices(services, map[model.UpstreamKey]*service{key: convertService(newService("a/one"))})
	tab.replaceSlices(parts, map[model.UpstreamKey]*slice{
		{Scope: "a", Name: "s1"}: part("s1", "2026-01-01T00:00:05Z"),
		{Scope: "a", Name: "s2"}: part("s2", "2026-01-01T00:00:09Z"),
		{Scope: "a", Name: "s3"}: part("s3", "not a time"),
	})
	g := tab.take()
	if want := time.Date(2026, 1, 1, 0, 0, 9, 0, time.UTC); len(g.put) != 1 || !g.put[0].Changed.Equal(want) {
		t.Errorf("%+v", g.put)
	}
}

// What an API says that checks nothing is not passed on with lines and terminal controls of its own.
func TestConvertUnprintable(t *testing.T) {
	s := convertService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1, Protocol: "X\n\u202eY\x1b"}}},
	})
	if got := s.refused[0].Object; got != "port X  Y /1 of Service a/b" {
		t.Errorf("%q", got)
	}
}
