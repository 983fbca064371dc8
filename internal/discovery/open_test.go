package discovery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// Credentials that cannot be used are told alike for clusters and clouds, and the message names the place.
func TestUnusableCredentials(t *testing.T) {
	cluster := v1alpha1.UpstreamSpec{Kubernetes: &v1alpha1.KubernetesUpstream{Secret: "up01"}}
	openStack := v1alpha1.UpstreamSpec{OpenStack: &v1alpha1.OpenStackUpstream{Secret: "up01"}}
	for _, c := range []struct {
		spec v1alpha1.UpstreamSpec
		data map[string]string
		want string
	}{
		{cluster, map[string]string{}, `SecretMissing: secret fairlead-system/up01 has no key "kubeconfig"`},
		{cluster, map[string]string{"kubeconfig": "{}"}, "InvalidCredentials: current-context: missing; set it, or name one of the contexts (none) in spec.kubernetes.context"},
		{openStack, map[string]string{"kubeconfig": "{}"}, `SecretMissing: secret fairlead-system/up01 has no key "clouds.yaml"`},
		{openStack, map[string]string{"clouds.yaml": "{}"}, "InvalidCredentials: clouds.yaml has no key clouds"},
		{v1alpha1.UpstreamSpec{}, map[string]string{}, "Invalid: spec: give either kubernetes or openstack"},
	} {
		secret := &corev1.Secret{Data: map[string][]byte{}}
		secret.Namespace, secret.Name = v1alpha1.SystemNamespace, "up01"
		for k, v := range c.data {
			secret.Data[k] = []byte(v)
		}
		_, err := Open(Origin{Upstream: &v1alpha1.Upstream{Spec: c.spec}, Secret: secret, Config: &Config{}}, nil)
		if got := fmt.Sprintf("%s: %v", cloud.ReasonOf(err), err); got != c.want {
			t.Errorf("%v:\ngot  %s\nwant %s", c.data, got, c.want)
		}
	}
}

// A cloud's load balancers are selected by project and tags; one that is not selected any more goes.
func TestSelecting(t *testing.T) {
	spec := &v1alpha1.UpstreamSpec{OpenStack: &v1alpha1.OpenStackUpstream{}, Namespaces: v1alpha1.UpstreamNamespaces{Exclude: []string{"old-*"}}}
	f := newFeed()
	s := selecting{sink{f, "up", 1, time.Now}, spec, labels.SelectorFromSet(labels.Set{"tier": "web"})}
	lb := func(project, name, tier string) *model.UpstreamService {
		return &model.UpstreamService{Key: model.UpstreamKey{Scope: "id-" + project, Name: name}, ScopeName: project, Labels: map[string]string{"tier": tier}}
	}
	s.Replace([]*model.UpstreamService{lb("team", "a", "web"), lb("team", "b", "db"), lb("old-team", "c", "web")})
	s.Put(lb("team", "a", "db"), lb("team", "b", "web"))
	var said []string
	for _, e := range append(f.take(), f.take()...) {
		for _, o := range e.services {
			said = append(said, fmt.Sprint(e.what, " ", o.Key.Name))
		}
		for _, k := range e.keys {
			said = append(said, fmt.Sprint(e.what, " ", k.Name))
		}
	}
	if want := []string{fmt.Sprint(replaced, " a"), fmt.Sprint(put, " b"), fmt.Sprint(removed, " a")}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}
