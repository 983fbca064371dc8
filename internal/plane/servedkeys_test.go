package plane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestKeysGoToWhoServes: two pools have a machine each, and a Gateway with a key of its own. Each machine is
// sent the one key; one that goes over to the other pool has both until it has drained.
func TestKeysGoToWhoServes(t *testing.T) {
	r, c := newRig(t), &clock{}
	r.create(gatewayClass())
	for i, site := range []string{"a", "b"} {
		p := pool()
		p.Name, p.Spec.Addresses = site, []string{fmt.Sprintf("192.0.2.%d/32", 80+i)}
		p.Spec.Machines = &metav1.LabelSelector{MatchLabels: map[string]string{"site": site}}
		g := gateway()
		g.Name, g.Annotations = site, map[string]string{v1alpha1.AnnotationPool: site}
		g.Spec.Listeners = []gatewayv1.Listener{{
			Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, Hostname: ptr(gatewayv1.Hostname(site + ".example")),
			TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayv1.ObjectName("key-" + site)}}},
		}}
		r.create(p, g, tlsSecret(t, "key-"+site, site+".example"))
	}
	p := r.plane("one", func(config *Config) { config.Now, config.TTL = c.Now, time.Hour }).awaitReady()
	agents := map[string]*fakeAgent{}
	move := func(machine, site string) {
		edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: machine}}, func(m *v1alpha1.Machine) { m.Labels = map[string]string{"site": site} })
	}
	for name, site := range map[string]string{"edge-a": "a", "edge-b": "b", "edge-c": "c", "edge-d": "a"} {
		agents[name] = r.joined(p, name)
		move(name, site)
	}
	for _, a := range agents {
		a.connect(p.AgentAddress().String())
		a.sees(established)
	}
	holds := func(machine string, want ...string) {
		t.Helper()
		agents[machine].await(fmt.Sprint("holds the keys ", want), func() error {
			got := []string{}
			for name := range agents[machine].held[typeSecret] {
				for _, site := range []string{"a", "b"} {
					if name == xds.SecretName(model.CertificateID("default/key-"+site)) || name == xds.HostSecretName(site+".example") {
						got = append(got, site)
					}
				}
			}
			if slices.Sort(got); !slices.Equal(got, append([]string{}, want...)) {
				return fmt.Errorf("it holds those of %v", got)
			}
			return nil
		})
	}
	holds("edge-a", "a")
	holds("edge-b", "b")
	holds("edge-c")
	move("edge-a", "b")
	holds("edge-a", "a", "b")
	c.jump(20 * time.Second)
	move("edge-c", "b") // what is sent now is sent after the jump was noticed
	holds("edge-c", "b")
	holds("edge-a", "a", "b")
	move("edge-d", "b")
	holds("edge-d", "a", "b")
	c.jump(11 * time.Second)
	holds("edge-a", "b")
	holds("edge-d", "a", "b")
	c.jump(20 * time.Second) // the view that both were on goes with the last of them
	holds("edge-d", "b")
	move("edge-c", "c")
	c.jump(31 * time.Second)
	holds("edge-c")
	holds("edge-a", "b")
	holds("edge-b", "b")
}
