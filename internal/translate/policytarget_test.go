package translate

import (
	"encoding/json"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// TestEveryTargetIsLookedFor holds that a policy finds an object of every kind that may be its target.
func TestEveryTargetIsLookedFor(t *testing.T) {
	const namespace = "system" // whose policies may target a GatewayClass
	for _, policies := range snapshot.Resources() {
		for kind, group := range policies.Targets {
			t.Run(string(policies.Kind)+" of "+string(kind), func(t *testing.T) {
				target, known := snapshot.ResourceOf(kind)
				if !known || target.Group != group {
					t.Fatalf("a snapshot has no kind %s.%s", kind, group)
				}
				o, policy := target.New(), policies.New()
				o.SetName("app")
				if !target.ClusterScoped {
					o.SetNamespace(namespace)
				}
				spec, err := json.Marshal(map[string]any{"spec": map[string]any{"targetRefs": []map[string]any{{"group": group, "kind": kind, "name": "app"}}}})
				if err == nil {
					err = json.Unmarshal(spec, policy)
				}
				if err != nil {
					t.Fatal(err)
				}
				policy.SetNamespace(namespace)
				policy.SetName("policy")
				message := func(objects ...snapshot.Object) string {
					s := snapshot.New()
					for _, o := range objects {
						if _, err := s.Set(o); err != nil {
							t.Fatal(err)
						}
					}
					status := New(Config{SecretNamespace: namespace}).Apply(s, s.Keys()).Statuses[model.Object{Kind: string(policies.Kind), Namespace: namespace, Name: "policy"}]
					if status == nil || len(status.Policy.Ancestors) != 1 {
						t.Fatalf("the status is %+v", status)
					}
					return status.Policy.Ancestors[0].Conditions[0].Message
				}
				if got := message(policy); !strings.Contains(got, "app not found") {
					t.Errorf("without the target it says %q", got)
				}
				if got := message(policy, o); strings.Contains(got, "not found") {
					t.Errorf("with the target it says %q", got)
				}
			})
		}
	}
}
