package access

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/internal/embedded"
)

// TestContract holds the fake and a real API to the same answers.
func TestContract(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		const name = "system:serviceaccount:default:default"
		contract(t, &fake{
			authorities: newAuthority(t).pem(), tokens: map[string]User{"right": {Name: name, Groups: []string{"system:serviceaccounts"}}},
			allowed: map[string][]Question{name: {{Verb: "list", Resource: "routes", Namespace: "default"}}},
		}, "right")
	})
	t.Run("real", func(t *testing.T) {
		server, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), DiskReserve: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := server.Stop(ctx); err != nil {
				t.Error(err)
			}
		}()
		client := kubernetes.NewForConfigOrDie(server.RESTConfig())
		settle(t, func() error {
			_, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
			return err
		})
		issued, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{Group}, Resources: []string{"routes"}, Verbs: []string{"list"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		api, err := Kubernetes(server.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		settle(t, func() error { // the API's authorizer follows roles a little later
			u, _, err := api.Review(t.Context(), issued.Status.Token)
			if err != nil {
				return err
			}
			if may, reason, err := api.Allows(t.Context(), u, Question{Verb: "list", Resource: "routes", Namespace: "default"}); !may {
				return fmt.Errorf("not allowed: %s, %w", reason, err)
			}
			return nil
		})
		contract(t, api, issued.Status.Token)
	})
}

func contract(t *testing.T, api API, token string) {
	t.Helper()
	if pem, err := api.Authorities(t.Context()); err != nil || len(pem) == 0 {
		t.Errorf("authorities: %q, %v", pem, err)
	}
	u, known, err := api.Review(t.Context(), token)
	if err != nil || !known || u.Name != "system:serviceaccount:default:default" || len(u.Groups) == 0 {
		t.Fatalf("the token is of %+v, %t, %v", u, known, err)
	}
	if u, known, err := api.Review(t.Context(), "nobody's"); err != nil || known || u.Name != "" {
		t.Errorf("an unknown token is of %+v, %t, %v", u, known, err)
	}
	for q, want := range map[Question]bool{
		{Verb: "list", Resource: "routes", Namespace: "default"}:     true,
		{Verb: "list", Resource: "routes", Namespace: "kube-system"}: false,
		{Verb: "list", Resource: "routes"}:                           false,
		{Verb: "watch", Resource: "routes", Namespace: "default"}:    false,
		{Verb: "list", Resource: "backends", Namespace: "default"}:   false,
	} {
		if may, _, err := api.Allows(t.Context(), u, q); err != nil || may != want {
			t.Errorf("%+v: %t, %v", q, may, err)
		}
	}
	if may, _, err := api.Allows(t.Context(), User{Name: "another"}, Question{Verb: "list", Resource: "routes", Namespace: "default"}); err != nil || may {
		t.Errorf("another user: %t, %v", may, err)
	}
}

func settle(t *testing.T, check func() error) {
	t.Helper()
	limit := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
