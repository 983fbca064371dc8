package upstream

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/kube"
)

func (c *cluster) namespace(name string) {
	c.t.Helper()
	_, err := c.client.CoreV1().Namespaces().Create(c.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) service(namespace, name string, change func(*corev1.Service)) {
	c.t.Helper()
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	if change != nil {
		change(o)
	}
	if _, err := c.client.CoreV1().Services(namespace).Create(c.t.Context(), o, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) removeService(namespace, name string) {
	c.t.Helper()
	if err := c.client.CoreV1().Services(namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// slice creates an EndpointSlice or replaces it.
func (c *cluster) slice(namespace, name, service string, addresses ...string) {
	c.t.Helper()
	port, portName := int32(8080), "http"
	o := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "test"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
	}
	for _, a := range addresses {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	api := c.client.DiscoveryV1().EndpointSlices(namespace)
	old, err := api.Get(c.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		o.ResourceVersion = old.ResourceVersion
		_, err = api.Update(c.t.Context(), o, metav1.UpdateOptions{})
	} else {
		_, err = api.Create(c.t.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// One API server through its life: changes, a partition, a restart that forgets old versions, credentials of all kinds.
func TestKubernetes(t *testing.T) {
	c := newCluster(t)
	c.namespace("team01")
	c.namespace("team02")
	c.service("team01", "app", nil)
	c.service("team01", "headless", func(o *corev1.Service) { o.Spec.ClusterIP = corev1.ClusterIPNone })
	c.service("team02", "node", func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeNodePort })
	c.slice("team01", "app-1", "app", "10.0.0.1")

	s := c.follow(nil)
	s.services(t, "first", "team01/app=10.0.0.1", "team01/headless=", "team02/node=")
	s.hears(t, "")
	if n := s.lists(); n != 1 {
		t.Errorf("%d lists were given at the start", n)
	}

	c.slice("team01", "app-1", "app", "10.0.0.1", "10.0.0.2")
	c.slice("team02", "node-1", "node", "10.0.0.3")
	s.services(t, "changes", "team01/app=10.0.0.1,10.0.0.2", "team01/headless=", "team02/node=10.0.0.3")
	c.service("team01", "name", func(o *corev1.Service) {
		o.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
	})
	s.services(t, "a name", "team01/app=10.0.0.1,10.0.0.2", "team01/headless=", "team02/node=10.0.0.3", "team01/name=")
	c.removeService("team01", "name")
	c.removeService("team01", "headless")
	s.services(t, "removed", "team01/app=10.0.0.1,10.0.0.2", "team02/node=10.0.0.3")

	t.Run("lag", func(t *testing.T) { lag(t, c, s) })
	if n := s.lists(); n != 1 {
		t.Errorf("%d lists were given without need", n)
	}

	// A partition: what is deleted meanwhile is gone afterwards, without a list.
	c.setCut(true)
	s.hears(t, v1alpha1.ReasonUnreachable)
	c.removeService("team02", "node")
	c.slice("team01", "app-1", "app", "10.0.0.9")
	s.services(t, "away", "team01/app=10.0.0.1", "team02/node=10.0.0.3")
	c.setCut(false)
	s.services(t, "back", "team01/app=10.0.0.9")
	s.hears(t, "")
	if n := s.lists(); n != 1 {
		t.Errorf("%d lists were given after a partition", n)
	}

	// The API server is killed. The one that follows does not know the versions of before: 410.
	c.setCut(true)
	c.slice("team01", "app-1", "app", "10.0.0.4")
	c.service("team02", "new", nil)
	c.kill()
	s.hears(t, v1alpha1.ReasonUnreachable)
	s.services(t, "dead", "team01/app=10.0.0.9")
	c.start()
	c.removeService("team02", "new")
	c.service("team02", "newer", nil)
	c.setCut(false)
	s.services(t, "restarted", "team01/app=10.0.0.4", "team02/newer=")
	s.hears(t, "")
	if n := s.lists(); n > 3 {
		t.Errorf("%d lists were given after a restart: more than one of each kind", n)
	}
	c.slice("team01", "app-1", "app", "10.0.0.5")
	s.services(t, "later", "team01/app=10.0.0.5", "team02/newer=")

	// Older API servers are listed in pages.
	t.Run("pages", func(t *testing.T) {
		featurestesting.SetFeatureDuringTest(t, features.WatchListClient, false)
		for i := range 600 { // more than a page
			c.service("team02", fmt.Sprintf("many-%d", i), nil)
		}
		all := []string{"team01/app=10.0.0.5", "team02/newer="}
		for i := range 600 {
			all = append(all, fmt.Sprintf("team02/many-%d=", i))
		}
		paged := c.follow(nil)
		paged.services(t, "pages", all...)
		if n := paged.lists(); n != 1 {
			t.Errorf("%d lists were given", n)
		}
		c.slice("team01", "app-1", "app", "10.0.0.5", "10.0.0.6")
		all[0] = "team01/app=10.0.0.5,10.0.0.6"
		paged.services(t, "a change", all...)
		c.slice("team01", "app-1", "app", "10.0.0.5")
	})

	t.Run("credentials", func(t *testing.T) { credentials(t, c) })
}

// lag reports how long changes take. It asserts nothing about it.
func lag(t *testing.T, c *cluster, s *sink) {
	var took []time.Duration
	for i := range 100 {
		address := fmt.Sprintf("10.0.1.%d", i+1)
		begin := time.Now()
		c.slice("team01", "app-1", "app", address)
		s.services(t, "lag", "team01/app="+address, "team02/node=10.0.0.3")
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("an update of an EndpointSlice, with the write itself: p50 %s, p99 %s", took[50], took[98])
	c.slice("team01", "app-1", "app", "10.0.0.1")
	s.services(t, "lag", "team01/app=10.0.0.1", "team02/node=10.0.0.3")
}

func credentials(t *testing.T, c *cluster) {
	ctx := context.Background()
	ns, err := c.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Somebody may read one namespace and nothing else.
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
	}
	meta := metav1.ObjectMeta{Name: "discover"}
	if _, err := c.client.RbacV1().Roles("team01").Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.RbacV1().RoleBindings("team01").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "discover"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "guest"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	guest := c.kubeconfig(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = "guest" })
	wrongToken := c.kubeconfig(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{Token: "wrong"} })
	otherAuthority := c.kubeconfig(func(k *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		k.CertificateAuthorityData = u.ClientCertificateData
	})
	for name, test := range map[string]struct {
		change   func(k *kube.Config)
		reason   string
		services []string
	}{
		"own API":                 {change: func(k *kube.Config) { k.OwnUID = string(ns.UID) }, reason: v1alpha1.ReasonOwnAPI},
		"wrong token":             {change: func(k *kube.Config) { k.Kubeconfig = wrongToken }, reason: v1alpha1.ReasonUnauthorized},
		"wrong authority":         {change: func(k *kube.Config) { k.Kubeconfig = otherAuthority }, reason: v1alpha1.ReasonCertificate},
		"forbidden":               {change: func(k *kube.Config) { k.Kubeconfig = guest }, reason: v1alpha1.ReasonForbidden},
		"one namespace":           {change: func(k *kube.Config) { k.Kubeconfig, k.Namespaces.Include = guest, []string{"team01"} }, services: []string{"team01/app=10.0.0.5"}},
		"one namespace forbidden": {change: func(k *kube.Config) { k.Kubeconfig, k.Namespaces.Include = guest, []string{"team01", "team02"} }, reason: v1alpha1.ReasonForbidden, services: []string{"team01/app=10.0.0.5"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.follow(test.change)
			s.hears(t, test.reason)
			s.services(t, "given", test.services...)
		})
	}
}
