package plane

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

var (
	web4  = model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: 80}
	edge4 = web4 // of proxies
)

// balanced is a Service of our class with IPv4.
func balanced(name string) *corev1.Service {
	s := service(name)
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr(v1alpha1.LoadBalancerClass), AllocateLoadBalancerNodePorts: ptr(false),
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: 80}},
	}
	return s
}

// on places endpoints of a slice on a node.
func on(s *discoveryv1.EndpointSlice, node string, which ...int) *discoveryv1.EndpointSlice {
	for _, i := range which {
		s.Endpoints[i].NodeName = &node
	}
	return s
}

// backendsOf says what the agent was told of a frontend's backends: "10.1.0.1=100/100
// ready" or, of proxies, "edge-1=...". The caller holds the lock.
func (a *fakeAgent) backendsOf(key model.FrontendKey) (string, error) {
	m := &agentv1.FrontendBackends{}
	if err := a.get(agentv1.FrontendBackendsType, key.String(), m); err != nil {
		return "", err
	}
	if err := a.get(agentv1.FrontendType, key.String(), &agentv1.Frontend{}); err != nil {
		return "", err
	}
	list, err := wire.FrontendBackendsOf(key.String(), m)
	var out []string
	for _, b := range list {
		name := b.Address.Addr().String()
		if b.Proxy(key) {
			name = b.Machine
		} else if b.Machine != "" {
			name += "@" + b.Machine
		}
		out = append(out, fmt.Sprintf("%s=%d/%d %s", name, b.Weight, b.HopWeight, b.State))
	}
	return strings.Join(out, ", "), err
}

func (a *fakeAgent) awaitBackends(key model.FrontendKey, want string) {
	a.t.Helper()
	a.await("is told of "+key.String()+": "+want, func() error {
		got, err := a.backendsOf(key)
		if err == nil && got != want {
			err = fmt.Errorf("it is told: %s", got)
		}
		return err
	})
}

// awaitNodes waits until the agent knows these machines: "edge-1" with an asterisk for one
// that takes packets out of tunnels.
func (a *fakeAgent) awaitNodes(want ...string) {
	a.t.Helper()
	a.await(fmt.Sprint("knows the machines ", want), func() error {
		var got []string
		for name := range a.held[agentv1.NodeType] {
			m := &agentv1.Node{}
			if err := a.get(agentv1.NodeType, name, m); err != nil {
				return err
			}
			if m.GetDecaps() {
				name += "*"
			}
			got = append(got, name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("it knows %v", got)
		}
		return nil
	})
}

func (a *fakeAgent) awaitNoFrontend() {
	a.t.Helper()
	a.await("has no frontend", func() error {
		if n := len(a.held[agentv1.FrontendType]) + len(a.held[agentv1.FrontendBackendsType]); n > 0 {
			return fmt.Errorf("it has %d resources", n)
		}
		return nil
	})
}

func servedIs(status metav1.ConditionStatus, reason, words string) func(*corev1.Service) error {
	return func(s *corev1.Service) error {
		if err := conditionIs(s.Status.Conditions, v1alpha1.ConditionServed, status, reason); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionServed); !strings.Contains(c.Message, words) || c.ObservedGeneration != s.Generation {
			return fmt.Errorf("the message is %q of generation %d", c.Message, c.ObservedGeneration)
		}
		return nil
	}
}

// poolOf gives addresses to machines with a label.
func poolOf(r *rig, machines ...string) {
	r.t.Helper()
	public := pool()
	public.Spec.Machines = &metav1.LabelSelector{MatchLabels: map[string]string{"edge": "yes"}}
	r.create(public)
	for _, name := range machines {
		edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(m *v1alpha1.Machine) { m.Labels = map[string]string{"edge": "yes"} })
	}
}
