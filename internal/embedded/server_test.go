package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func makeNamespace(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestServerIsHealthyAndItsKubeconfigWorks(t *testing.T) {
	s := shared.get(t)
	if err := s.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(s.cfg.kubeconfigPath())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig has mode %v, error %v", info.Mode(), err)
	}
	version, err := clientFor(t, loadKubeconfig(t, s.cfg.kubeconfigPath())).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.Major == "" {
		t.Errorf("version %+v", version)
	}
	select {
	case <-s.Done():
		t.Error("done while it runs")
	default:
	}
}

func TestNobodyIsAnonymous(t *testing.T) {
	s := shared.get(t)
	cfg := rest.AnonymousClientConfig(s.RESTConfig())
	if _, err := clientFor(t, cfg).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("anonymous list: %v, want unauthorized", err)
	}
}

func TestEtcdListensOnAPrivateUnixSocketOnly(t *testing.T) {
	s := shared.get(t)
	info, err := os.Stat(s.cfg.DataDir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory has mode %v, error %v", info.Mode(), err)
	}
	inodes := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if link, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			inodes[link] = true
		}
	}
	var listening []string
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && inodes["socket:["+f[9]+"]"] {
				listening = append(listening, f[1])
			}
		}
	}
	want := fmt.Sprintf(":%04X", s.Address().Port())
	if len(listening) != 1 || !strings.HasSuffix(listening[0], want) {
		t.Errorf("this process listens on %v, want the API's port %s alone", listening, want)
	}
}

func TestControllers(t *testing.T) {
	t.Parallel()
	c := clientFor(t, shared.get(t).RESTConfig())
	core := c.CoreV1()
	makeNamespace(t, c, "controllers")

	t.Run("default ServiceAccount and root certificate", func(t *testing.T) {
		for _, ns := range []string{"default", "kube-system", "controllers"} {
			eventually(t, ns, func() error {
				_, err1 := core.ServiceAccounts(ns).Get(t.Context(), "default", metav1.GetOptions{})
				_, err2 := core.ConfigMaps(ns).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
				return errors.Join(err1, err2)
			})
		}
	})
	t.Run("tokens authenticate", func(t *testing.T) {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
			Type:       corev1.SecretTypeServiceAccountToken,
		}
		if _, err := core.Secrets("controllers").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var tokens []string
		eventually(t, "the secret's token", func() error {
			s, err := core.Secrets("controllers").Get(t.Context(), "token", metav1.GetOptions{})
			if err == nil && len(s.Data["token"]) == 0 {
				err = errors.New("still empty")
			}
			if err == nil {
				tokens = append(tokens, string(s.Data["token"]))
			}
			return err
		})
		requested, err := core.ServiceAccounts("controllers").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range append(tokens, requested.Status.Token) {
			cfg := rest.AnonymousClientConfig(shared.get(t).RESTConfig())
			cfg.BearerToken = token
			who, err := clientFor(t, cfg).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := who.Status.UserInfo.Username, "system:serviceaccount:controllers:default"; got != want {
				t.Errorf("the token is of %q, want %q", got, want)
			}
		}
	})
	t.Run("aggregated roles grant", func(t *testing.T) {
		_, err := c.RbacV1().RoleBindings("controllers").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "edit"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		may := func(namespace, verb string) (bool, error) {
			r, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "alice",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: "services"},
			}}, metav1.CreateOptions{})
			if err != nil {
				return false, err
			}
			return r.Status.Allowed, nil
		}
		eventually(t, "alice edits services", func() error {
			ok, err := may("controllers", "create")
			if err == nil && !ok {
				err = errors.New("refused")
			}
			return err
		})
		if ok, err := may("default", "create"); ok || err != nil {
			t.Errorf("alice may create services elsewhere: %v, %v", ok, err)
		}
	})
	t.Run("EndpointSlices from selectors", func(t *testing.T) {
		labels := map[string]string{"app": "web"}
		_, err := core.Services("controllers").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// A pod counts only if its node is known.
		if _, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := core.Nodes().Delete(context.WithoutCancel(t.Context()), "elsewhere", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}()
		pod, err := core.Pods("controllers").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
			Spec:       corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		if _, err := core.Pods("controllers").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a slice with the pod", func() error {
			l, err := c.DiscoveryV1().EndpointSlices("controllers").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
			if err != nil {
				return err
			}
			for _, s := range l.Items {
				for _, e := range s.Endpoints {
					if e.Addresses[0] == "10.1.2.3" && e.Conditions.Ready != nil && *e.Conditions.Ready {
						return nil
					}
				}
			}
			return fmt.Errorf("%d slices without it", len(l.Items))
		})
		// There is no kubelet to confirm that the pod ended.
		if err := core.Pods("controllers").Delete(t.Context(), "web", *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("dependents go with their owner", func(t *testing.T) {
		owner, err := core.ConfigMaps("controllers").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = core.ConfigMaps("controllers").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "dependent", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := core.ConfigMaps("controllers").Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the dependent goes", func() error {
			_, err := core.ConfigMaps("controllers").Get(t.Context(), "dependent", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it is there"), err)
		})
	})
	t.Run("namespaces finish deleting, also after a panic", func(t *testing.T) {
		before := shared.panicked.Load()
		request := "DELETE /api/v1/namespaces/controllers/configmaps"
		shared.panicOn.Store(&request)
		if err := core.Namespaces().Delete(t.Context(), "controllers", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the namespace goes", func() error {
			_, err := core.Namespaces().Get(t.Context(), "controllers", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it is there"), err)
		})
		if got := shared.panicked.Load() - before; got != 1 {
			t.Errorf("%d panics, want 1", got)
		}
		if err := shared.get(t).Healthy(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCertificatesRenewWhileRunning(t *testing.T) {
	s := shared.get(t)
	presented := func() (string, error) {
		pool, err := os.ReadFile(s.pki.path("ca.crt"))
		if err != nil {
			return "", err
		}
		cfg, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: pool}})
		if err != nil {
			return "", err
		}
		conn, err := tls.Dial("tcp", s.Address().String(), cfg)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
	}
	serves := func(old string) string {
		var now string
		eventually(t, "the API serves its new certificate", func() (err error) {
			now, err = presented()
			if err == nil && now == old {
				err = errors.New("it serves the old one")
			}
			return err
		})
		return now
	}
	old, err := presented()
	if err != nil {
		t.Fatal(err)
	}
	if shared.behind.Swap(yearsBetterPart) == 0 { // this test ran before: begin again with old certificates
		for _, leaf := range s.pki.leaves {
			if err := s.pki.cas[leaf.ca].issue(s.pki.dir, leaf, s.cfg.Now()); err != nil {
				t.Fatal(err)
			}
		}
		old = serves(old)
	}
	kubeconfig, err := os.ReadFile(s.cfg.kubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	c := clientFor(t, s.RESTConfig())

	shared.behind.Store(0) // the clock steps to where a third of the certificates' life is left
	if err := s.renewCertificates(); err != nil {
		t.Fatal(err)
	}
	serves(old)
	if _, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a client from before the renewal: %v", err)
	}
	renewed, err := os.ReadFile(s.cfg.kubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if string(renewed) == string(kubeconfig) {
		t.Error("the kubeconfig has the old certificate")
	}
	if _, err := clientFor(t, loadKubeconfig(t, s.cfg.kubeconfigPath())).Discovery().ServerVersion(); err != nil {
		t.Errorf("the renewed kubeconfig: %v", err)
	}
	if err := s.renewCertificates(); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(s.cfg.kubeconfigPath()); err != nil || string(again) != string(renewed) {
		t.Errorf("certificates that are good were renewed again: %v", err)
	}
}

func TestOutsideIsTheSameAPI(t *testing.T) {
	s := shared.get(t)
	api, err := Outside(t.Context(), s.cfg.kubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := clientFor(t, api.RESTConfig()).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(api.Stop(t.Context()), api.Stop(t.Context()), api.Err()); err != nil {
		t.Error(err)
	}
	<-api.Done()
	if err := s.Healthy(t.Context()); err != nil {
		t.Errorf("stopping the outside view stopped the API: %v", err)
	}
}

func TestOutsideSaysWhatIsWrong(t *testing.T) {
	_, err := Outside(t.Context(), t.TempDir()+"/none")
	wantError(t, err, "read kubeconfig", "/none")

	_, err = Outside(t.Context(), "")
	wantError(t, err, "no kubeconfig was given and this is not a pod")

	path := t.TempDir() + "/dead"
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://" + addr + "'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Outside(t.Context(), path)
	wantError(t, err, "does not answer", addr, path)
}

func TestProbeNamesFailingChecks(t *testing.T) {
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n")
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(ln) }() // it always ends with an error, by the Close below
	defer server.Close()
	p, err := newProbe(&rest.Config{Host: "http://" + ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	err = p.ready(context.Background())
	wantError(t, err, "500", "etcd failed")
	if strings.Contains(err.Error(), "ping") {
		t.Errorf("error %q names a check that passes", err)
	}
}

func TestKubectlExplains(t *testing.T) {
	s := shared.get(t)
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed")
	}
	out, err := exec.Command(kubectl, "--kubeconfig", s.cfg.kubeconfigPath(), "explain", "service.spec.ports").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ServicePort") {
		t.Errorf("kubectl explain: %v\n%s", err, out)
	}
}
