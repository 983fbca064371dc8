package plane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// cluster is the part of an API that runs pods: a node with an agent's pod on it.
type cluster struct {
	*rig
	api kubernetes.Interface
	pod *corev1.Pod
}

const edgeNamespace = "edge"

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{rig: newRig(t)}
	var err error
	if c.api, err = kubernetes.NewForConfig(shared.server.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	made := func(err error) {
		t.Helper()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{edgeNamespace, Namespace} {
		_, err = c.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		made(err)
		for _, name := range []string{"agent", "other"} {
			_, err = c.api.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			made(err)
		}
	}
	_, err = c.api.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1.example"}}, metav1.CreateOptions{})
	made(err)
	no := false
	c.pod, err = c.api.CoreV1().Pods(edgeNamespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-"},
		Spec: corev1.PodSpec{
			NodeName: "node-1.example", ServiceAccountName: "agent", AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "agent", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.api.CoreV1().Pods(edgeNamespace).Delete(ctx, c.pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Error(err)
		}
		if err := c.api.CoreV1().Nodes().Delete(ctx, "node-1.example", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		err := c.api.CoreV1().ConfigMaps(edgeNamespace).Delete(ctx, authorityConfigMap, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return c
}

// token is one that the API gives to an account, bound to the pod or to nothing.
func (c *cluster) token(account, audience string, bound bool) string {
	c.t.Helper()
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if bound {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: c.pod.Name, UID: c.pod.UID}
	}
	r, err := c.api.CoreV1().ServiceAccounts(edgeNamespace).CreateToken(context.Background(), account, r, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Status.Token
}

// TestPodTokens: what the API itself says of tokens that it made.
func TestPodTokens(t *testing.T) {
	c := newCluster(t)
	p, err := newPods(shared.server.RESTConfig(), ServiceAccount{edgeNamespace, "agent"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := p.Review(context.Background(), c.token("agent", agentv1.Audience, true))
	if err != nil || id != (southbound.Identity{Machine: "node-1.example"}) {
		t.Fatalf("a good token is of %+v, %v", id, err)
	}
	for name, x := range map[string]struct{ token, words string }{
		"not bound to a pod": {c.token("agent", agentv1.Audience, false), "on which node"},
		"another audience":   {c.token("agent", "https://kubernetes.default.svc", true), "does not know it"},
		"another account":    {c.token("other", agentv1.Audience, false), "system:serviceaccount:edge:other"},
		"no token":           {"x", "does not know it"},
		"cut":                {strings.TrimRight(c.token("agent", agentv1.Audience, true), "x")[:40], "does not know it"},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := p.Review(context.Background(), x.token)
			if !errors.Is(err, southbound.ErrToken) || !strings.Contains(err.Error(), x.words) {
				t.Errorf("it is of %+v, %v", id, err)
			}
		})
	}
	dead := rest.CopyConfig(shared.server.RESTConfig())
	dead.Host = "https://127.0.0.1:1"
	if p, err = newPods(dead, p.account); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Review(context.Background(), "x"); !errors.Is(err, southbound.ErrAway) {
		t.Errorf("without an API: %v", err)
	}
}

// joinPod joins as an agent in a pod does, trusting what the ConfigMap says.
func (a *fakeAgent) joinPod(p *running, authority, token string) error {
	a.root = x509.NewCertPool()
	a.root.AppendCertsFromPEM([]byte(authority))
	conn, err := grpc.NewClient(p.AgentAddress().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		ServerName: agentv1.ServerName, MinVersion: tls.VersionTLS13, RootCAs: a.root,
	})))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	issued, err := agentv1.NewEnrollmentClient(conn).Join(ctx, &agentv1.JoinRequest{ServiceAccountToken: token, Csr: a.request(), Machine: a.name})
	if err != nil {
		return err
	}
	a.take(issued)
	return nil
}

// TestPodBecomesAMachine: through a whole plane, by what that has published; and once
// more, with another key, after its Machine was deleted.
func TestPodBecomesAMachine(t *testing.T) {
	c := newCluster(t)
	ctx := context.Background()
	p := c.plane("a", func(config *Config) { config.Agents = ServiceAccount{edgeNamespace, "agent"} }).awaitReady()
	authority := ""
	eventually(t, "the authority is published", func() error {
		m, err := c.api.CoreV1().ConfigMaps(edgeNamespace).Get(ctx, authorityConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if authority = m.Data[authorityField]; strings.Contains(authority, "PRIVATE") || !strings.Contains(authority, "BEGIN CERTIFICATE") {
			return fmt.Errorf("it holds %q", authority)
		}
		return nil
	})
	token := c.token("agent", agentv1.Audience, true)
	for range 2 {
		a := newFakeAgent(t, "node-1.example")
		// The plane hears a moment later that the Machine is gone, and that nobody may come back by that name.
		eventually(t, "the pod joins", func() error { return a.joinPod(p, authority, token) })
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "node-1.example"}}
		if err := reread(c.rig, m); err != nil {
			t.Fatal(err)
		}
		if keys := keysOf(m); len(keys) != 1 || keys[0] == "" {
			t.Fatalf("its keys are %v", keys)
		}
		if err := c.client.Delete(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	err := newFakeAgent(t, "node-2").joinPod(p, authority, token)
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "node-1.example") {
		t.Errorf("under another node's name: %v", err)
	}
}

// TestRotationIsPublished: pods are told of both authorities while a rotation is under way, and of the
// next one alone afterwards; they join by what the cluster has brought them, old or new.
func TestRotationIsPublished(t *testing.T) {
	c := newCluster(t)
	ctx := context.Background()
	p := c.plane("a", func(config *Config) { config.Agents = ServiceAccount{edgeNamespace, "agent"} }).awaitReady()
	published := func(certificates int) string {
		t.Helper()
		authority := ""
		eventually(t, fmt.Sprintf("%d authorities are published", certificates), func() error {
			m, err := c.api.CoreV1().ConfigMaps(edgeNamespace).Get(ctx, authorityConfigMap, metav1.GetOptions{})
			if err != nil {
				return err
			}
			authority = m.Data[authorityField]
			if strings.Count(authority, "BEGIN CERTIFICATE") != certificates || strings.Contains(authority, "PRIVATE") {
				return fmt.Errorf("it holds %q", authority)
			}
			return nil
		})
		return authority
	}
	token := c.token("agent", agentv1.Audience, true)
	join := func(authority string) {
		t.Helper()
		// The plane has just begun to lead, and keeps the name of a machine that may come back for a while.
		eventually(t, "the pod joins", func() error { return newFakeAgent(t, "node-1.example").joinPod(p, authority, token) })
	}
	before := published(1)
	if _, err := RotateAuthority(ctx, c.client, time.Now); err != nil {
		t.Fatal(err)
	}
	during := published(2)
	join(before)
	join(during)
	if _, err := RetireAuthority(ctx, c.client, time.Now, []string{"node-1.example"}); err != nil {
		t.Fatal(err)
	}
	after := published(1)
	if after == before {
		t.Error("the retired authority is published still")
	}
	join(during)
	join(after)
}

// TestPublishedAuthorityIsRepaired: somebody writes another one over it.
func TestPublishedAuthorityIsRepaired(t *testing.T) {
	c := newCluster(t)
	ctx := context.Background()
	p, err := newPods(shared.server.RESTConfig(), ServiceAccount{edgeNamespace, "agent"})
	if err != nil {
		t.Fatal(err)
	}
	maps := c.api.CoreV1().ConfigMaps(edgeNamespace)
	// An installation's manifests bring an empty one.
	empty := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: authorityConfigMap, Labels: labels()}}
	if _, err := maps.Create(ctx, empty, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"an empty one", "a forged one"} {
		if err := derive.Apply(ctx, c.client, p.authorityFor("roots", slog.New(slog.DiscardHandler))); err != nil {
			t.Fatal(err)
		}
		m, err := maps.Get(ctx, authorityConfigMap, metav1.GetOptions{})
		if err != nil || m.Data[authorityField] != "roots" || m.Labels["test"] != "yes" {
			t.Fatalf("%s became %v, %v", what, m, err)
		}
		m.Data[authorityField] = "forged"
		if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUninstalledPlaneLeavesNothing: what a plane makes in its cluster belongs to its
// service account, also when an earlier one of that name made it.
func TestUninstalledPlaneLeavesNothing(t *testing.T) {
	c := newCluster(t)
	ctx := context.Background()
	accounts := c.api.CoreV1().ServiceAccounts(Namespace)
	account, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "fairlead-plane"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadAuthority(ctx, c.client, time.Now, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: AuthoritySecret}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: leaseName}}
	p := c.plane("a", func(config *Config) {
		config.REST.Impersonate = rest.ImpersonationConfig{
			UserName: (ServiceAccount{Namespace, "fairlead-plane"}).user(), UID: string(account.UID),
			Groups: []string{"system:masters", "system:authenticated"},
		}
	}).awaitReady()
	for _, o := range []client.Object{secret, lease} {
		if err := reread(c.rig, o); err != nil {
			t.Fatal(err)
		}
		if r := o.GetOwnerReferences(); len(r) != 1 || r[0].UID != account.UID {
			t.Fatalf("%s belongs to %v", o.GetName(), r)
		}
	}
	p.stop()
	if err := accounts.Delete(ctx, account.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{secret, lease} {
		eventually(t, o.GetName()+" is collected", func() error {
			if err := reread(c.rig, o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
}
