package translate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
)

// balanceKinds are the kinds that change in a world about balancing.
var balanceKinds = []snapshot.Kind{
	snapshot.KindService, snapshot.KindService, snapshot.KindService, snapshot.KindEndpointSlice, snapshot.KindEndpointSlice, snapshot.KindGateway, snapshot.KindListenerSet,
	snapshot.KindTLSRoute, snapshot.KindTLSRoute, snapshot.KindTCPRoute, snapshot.KindTCPRoute, snapshot.KindTCPRoute, snapshot.KindUDPRoute, snapshot.KindUDPRoute,
	snapshot.KindLoadBalancerPolicy, snapshot.KindLoadBalancerPolicy, snapshot.KindLoadBalancerPolicy, snapshot.KindClientPolicy, snapshot.KindAddressPool, snapshot.KindMachine,
	snapshot.KindReferenceGrant, snapshot.KindHTTPRoute, snapshot.KindIngressRoute, snapshot.KindSecret, snapshot.KindBackendTLSPolicy, snapshot.KindGatewayClass,
	snapshot.KindNamespace, snapshot.KindBGPPeer,
}

// newBalanceWorld is a world in which frontends come and go.
func newBalanceWorld(t testing.TB, seed uint64, strange string) *world {
	w := newWorld(t, seed, strange)
	w.g.near, w.g.balanced, w.g.kinds = true, true, balanceKinds
	w.config.RootNamespaces = nil
	w.tr = New(w.config)
	ground := `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: one}
spec: {controllerName: fairlead.dev/gateway}
---
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: ground}
spec: {addresses: [192.0.2.0/28, "2001:db8::/120"], sharing: {namespaces: {}}}
---
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: edge}
status: {addresses: [10.0.0.9]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: one, namespace: a}
spec:
  gatewayClassName: one
  allowedListeners: {namespaces: {from: All}}
  listeners:
  - {name: l0, port: 53, protocol: UDP}
  - {name: l1, port: 53, protocol: TCP}
  - {name: l2, port: 443, protocol: TLS, tls: {mode: Passthrough}}
  - {name: l3, port: 80, protocol: HTTP}
  - {name: l4, port: 444, protocol: TLS, hostname: x.example.com, tls: {mode: Terminate, certificateRefs: [{name: ground}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: ground, namespace: a}
type: kubernetes.io/tls
stringData: {tls.crt: CERTIFICATE x.example.com, tls.key: KEY x.example.com}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ground, namespace: a, labels: {kubernetes.io/service-name: one}}
addressType: IPv4
endpoints: [{addresses: [10.0.1.1], nodeName: edge}, {addresses: [10.0.0.9]}, {addresses: [10.0.1.2], nodeName: gone}]
ports: [{name: web, port: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: a}
spec: {type: LoadBalancer, loadBalancerClass: fairlead.dev/l4, ports: [{name: web, port: 80}, {name: dns, port: 80, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: two, namespace: a}
spec: {ports: [{name: web, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: shared, namespace: a, annotations: {fairlead.dev/share-vip: s}}
spec: {type: LoadBalancer, loadBalancerClass: fairlead.dev/l4, ports: [{name: web, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: shared, namespace: b, annotations: {fairlead.dev/share-vip: a/s}}
spec: {type: LoadBalancer, loadBalancerClass: fairlead.dev/l4, ports: [{name: web, port: 80}, {name: dns, port: 81}]}
`
	w.add(ground)
	w.record()
	return w
}

// TestBalancingIncrementalIsFull changes worlds about balancing at random and compares after
// each change; at the end nothing is remembered of what was deleted.
func TestBalancingIncrementalIsFull(t *testing.T) {
	incrementalIsFull(t, newBalanceWorld)
}

// FuzzBalancing follows worlds about balancing with strange texts in all places.
func FuzzBalancing(f *testing.F) {
	fuzzWorlds(f, newBalanceWorld, "", "x", "\xff", "a/b", "/\x00", "10.0.0.0/99", "::/0", "\n", "é", "53/UDP")
}

// Worlds reach what there is to be balanced, so that the other tests mean something.
func TestWorldsBalance(t *testing.T) {
	seen := map[string]int{}
	note := func(is bool, what string) {
		if is {
			seen[what]++
		}
	}
	for seed := range uint64(30) {
		w := newBalanceWorld(t, seed, "")
		for range 30 {
			w.change(4)
			result := w.tr.result()
			for k, f := range result.Frontends {
				note(f.Owner.Kind == "Service", "of a Service")
				if a := result.Assignments[k.VIP]; a != nil {
					_, shared := a.Owner.ShareKey()
					note(shared, "at a shared address")
					note(shared && f.Owner.Namespace != a.Owner.Namespace, "of a guest")
				}
				note(f.Owner.Kind == "Gateway" && f.Listener == "" && len(f.Targets) > 0, "of a route")
				note(f.Owner.Kind == "Gateway" && f.Listener == "" && len(f.Targets) == 0, "that leads nowhere")
				note(f.Listener != "" && k.Transport == model.UDP, "of HTTP/3")
				note(len(f.Targets) > 1, "with shares")
				note(len(f.Targets) > 0 && f.Targets[0].Set == "", "with a broken share")
				note(f.Mode != "", "with a mode")
				note(f.Check != nil, "with a check")
				note(len(f.Sources) > 0, "for some")
				note(len(f.Drained) > 0, "with drained backends")
				note(f.LocalOnly, "for local backends")
				note(f.QUIC != nil, "of QUIC")
				note(len(f.Weights) > 0 && f.Check == nil, "with weights")
				if f.Owner.Kind != string(snapshot.KindIngressRoute) && result.Assignments[k.VIP] == nil {
					t.Fatalf("frontend %s at an address that is nobody's", k)
				}
			}
			for _, h := range result.TLSHosts {
				note(h.Owner.Kind == "TLSRoute" && len(h.Certificates) == 0, "passed on")
				note(h.Owner.Kind == "TLSRoute" && len(h.Certificates) > 0, "ended")
				note(h.Owner.Kind == "TCPRoute", "ended for a TCPRoute")
			}
			for _, s := range result.Sets {
				for _, b := range s.Backends {
					note(b.Machine != "", "a backend at a machine")
				}
			}
			for _, s := range result.Statuses {
				note(s.Service != nil && strings.Contains(s.Service.Conditions[0].Message, ", wh") && strings.Contains(s.Service.Conditions[0].Message, " belongs to "), "a port taken")
				if route := s.Route(); route != nil {
					for _, p := range route.Parents {
						for _, c := range p.Conditions {
							note(c.Type == string(condition.ConditionListenerConflict), "a conflict")
						}
					}
				}
			}
			for _, m := range result.Machines {
				note(m.HostsOnly, "a machine for backends")
			}
		}
	}
	haveAll(t, seen,
		"of a Service", "of a route", "that leads nowhere", "of HTTP/3", "with shares", "with a broken share", "with a mode", "with a check", "for some", "with drained backends",
		"for local backends", "of QUIC", "with weights", "passed on", "ended", "ended for a TCPRoute", "a backend at a machine", "a conflict", "a machine for backends", "at a shared address", "of a guest", "a port taken",
	)
}

func (g generator) rules() int {
	if g.chance(90) {
		return 1
	}
	return g.IntN(3)
}

func (g generator) streamRefs() []gatewayv1.BackendRef {
	var refs []gatewayv1.BackendRef
	for range 1 + g.IntN(2) {
		refs = append(refs, g.backendRef())
	}
	return refs
}

// balance says how a Service of our class is balanced.
func (g generator) balance(o *corev1.Service) {
	if g.chance(30) {
		o.Spec.LoadBalancerSourceRanges = []string{g.word("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32", "x")}
	}
	if g.chance(30) {
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		seconds := int32(g.IntN(100))
		o.Spec.SessionAffinityConfig = some(g, corev1.SessionAffinityConfig{ClientIP: some(g, corev1.ClientIPConfig{TimeoutSeconds: &seconds})})
	}
	if g.chance(20) {
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if g.chance(20) {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "more", Port: 82, Protocol: pick(g, corev1.ProtocolSCTP, corev1.ProtocolUDP)})
	}
}

func (g generator) balancePolicy(o *v1alpha1.LoadBalancerPolicy) {
	s := &o.Spec
	s.TargetRefs = g.targets(snapshot.KindService, snapshot.KindService, snapshot.KindGateway, snapshot.KindTCPRoute, snapshot.KindUDPRoute)
	if g.chance(50) {
		s.Mode = v1alpha1.ForwardMode(g.word("Local", "NAT", "DSRGeneve", "DSRIPIP", "DSRL2", "Odd"))
	}
	if g.chance(20) {
		s.DataPlane = v1alpha1.DataPlane(g.word("XDP", "NFTables", "IPVS", "Odd"))
	}
	if g.chance(30) {
		s.Hash = v1alpha1.FlowHash(g.word("FiveTuple", "ThreeTuple", "Source"))
		s.SessionAffinity = some(g, v1alpha1.SessionAffinity{Timeout: g.policyDuration()})
		s.PanicThreshold = some(g, int32(g.IntN(120)))
	}
	if g.chance(40) {
		h := &v1alpha1.HealthCheck{
			Type: v1alpha1.CheckType(g.word("TCP", "TLS", "HTTP", "HTTPS", "GRPC", "UDP", "ODD")), Port: some(g, int32(g.IntN(3))), Rise: some(g, int32(g.IntN(3))),
		}
		if g.chance(40) {
			h.Path, h.Host, h.Service = g.word("", "/ok", "ok"), g.word("", "x.example.com", "-"), g.word("", "a.B")
			h.Codes = []string{g.word("200", "200-299", "9", "300-200")}
			h.Interval, h.Timeout = g.policyDuration(), g.policyDuration()
		}
		if g.chance(30) {
			h.Send, h.Expect = []byte{1, 2}, []byte(g.word("", "x"))
		}
		s.HealthCheck = h
	}
	if g.chance(30) {
		s.SourceRanges = []string{g.word("10.0.0.0/9", "192.0.2.1", "::/0", "y")}
	}
	if g.chance(30) {
		drain := g.policyDuration()
		s.DrainTime, s.NewFlowsPerSecond = some(g, drain), some(g, int32(g.IntN(3)))
	}
	if g.chance(20) {
		s.ExternalTrafficPolicy = v1alpha1.TrafficPolicy(g.word("Cluster", "Local", "Odd"))
	}
	if g.chance(30) {
		s.Weights = []v1alpha1.BackendWeight{{Address: g.address(), Weight: int32(g.IntN(300) - 1)}}
	}
	if g.chance(20) {
		s.Scheduler, s.MaxFlowsPerBackend = v1alpha1.Scheduler(g.word("", "wlc", "mh", "rr")), some(g, int32(g.IntN(3)))
	}
	if g.chance(30) {
		s.QUIC = &v1alpha1.QUICServerID{ServerIDOffset: some(g, int32(g.IntN(22))), ServerIDLength: int32(g.IntN(10))}
	}
}
