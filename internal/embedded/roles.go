package embedded

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	rbac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// readGroup is the API group of the rights to the read API. No object of it exists.
const readGroup = "read.fairlead.dev"

// The roles of readers. Those who may view a namespace may read what planes know of it.
const (
	ReaderRole          = "fairlead-reader"
	NamespaceReaderRole = "fairlead-namespace-reader"
	TapperRole          = "fairlead-tapper" // who sees single requests of clients; part of no other role
	findRole            = "fairlead-read"   // who finds the read API
	findNamespace       = "fairlead-system"
)

// What readers may read: all, and of one namespace. Taps show requests of others and are not in it.
var (
	readResources          = []string{"backends", "changes", "explanations", "flows", "metrics", "revisions", "routes", "status", "top", "upstreams"}
	namespaceReadResources = []string{"backends", "changes", "metrics", "routes", "top"}
)

// InstallRoles writes the roles of those who read what planes know. The chart has the same ones.
func InstallRoles(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make the client for roles: %w", err)
	}
	options := metav1.ApplyOptions{FieldManager: "fairlead", Force: true}
	rule := rbac.PolicyRule().WithAPIGroups(readGroup).WithVerbs("get", "list", "watch")
	everything := *rule
	for _, role := range []*rbac.ClusterRoleApplyConfiguration{
		rbac.ClusterRole(ReaderRole).WithRules(everything.WithResources(readResources...)),
		rbac.ClusterRole(NamespaceReaderRole).WithRules(rule.WithResources(namespaceReadResources...)).WithLabels(map[string]string{
			"rbac.authorization.k8s.io/aggregate-to-view": "true",
		}),
		rbac.ClusterRole(TapperRole).WithRules(rbac.PolicyRule().WithAPIGroups(readGroup).WithResources("flows", "requests").WithVerbs("tap")),
	} {
		if _, err := client.RbacV1().ClusterRoles().Apply(ctx, role, options); err != nil {
			return fmt.Errorf("write cluster role %s: %w", *role.Name, err)
		}
	}
	if err := ensureNamespace(ctx, client, findNamespace); err != nil {
		return err
	}
	find := rbac.Role(findRole, findNamespace).WithRules(rbac.PolicyRule().WithAPIGroups("").WithResources("configmaps").WithResourceNames(findRole).WithVerbs("get"))
	if _, err := client.RbacV1().Roles(findNamespace).Apply(ctx, find, options); err != nil {
		return fmt.Errorf("write role %s/%s: %w", findNamespace, findRole, err)
	}
	all := rbac.RoleBinding(findRole, findNamespace).
		WithRoleRef(rbac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(findRole)).
		WithSubjects(rbac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.GroupKind).WithName("system:authenticated"))
	if _, err := client.RbacV1().RoleBindings(findNamespace).Apply(ctx, all, options); err != nil {
		return fmt.Errorf("write role binding %s/%s: %w", findNamespace, findRole, err)
	}
	return nil
}

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Patch(ctx, name, types.ApplyPatchType,
		[]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`), metav1.PatchOptions{FieldManager: "fairlead"})
	if err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return nil
}
