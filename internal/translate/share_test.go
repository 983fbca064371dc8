package translate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

const shareGround = `
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: edge}
spec: {addresses: [192.0.2.0/29], sharing: {namespaces: {}}}
`

func sharingService(namespace, name, created, share string, port int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s, creationTimestamp: %q, annotations: {fairlead.dev/share-vip: %s}}
spec: {type: LoadBalancer, loadBalancerClass: fairlead.dev/l4, ports: [{port: %d}]}
`, name, namespace, created, share, port)
}

// recordAll writes the assignments of pools into the snapshot, as a plane does, until nothing is left to write.
func recordAll(t *testing.T, tr *Translator, s *snapshot.Snapshot) {
	t.Helper()
	for range 4 {
		keys := tr.record(s)
		if len(keys) == 0 {
			return
		}
		tr.Apply(s, keys)
	}
	t.Fatal("records do not converge")
}

// TestAPortHasOneOwner has two Services want one port of one VIP, of one namespace and of
// two, in both orders: the older has it, the other is told who, and a plane that begins to
// lead, which knows what is stored only, comes to the same. When the winner goes, the other
// has the port.
func TestAPortHasOneOwner(t *testing.T) {
	for _, c := range []struct{ name, older, younger string }{
		{"one namespace", sharingService("a", "older", "2024-01-01T00:00:00Z", "k", 80), sharingService("a", "younger", "2024-01-02T00:00:00Z", "k", 80)},
		{"a guest", sharingService("a", "older", "2024-01-01T00:00:00Z", "k", 80), sharingService("b", "younger", "2024-01-02T00:00:00Z", "a/k", 80)},
	} {
		for _, order := range [][]string{{c.older, c.younger}, {c.younger, c.older}} {
			s := snapshot.New()
			readYAML(t, s, []byte(shareGround))
			tr := full(input.Config{}, s)
			for _, text := range order {
				before := s.Keys()
				readYAML(t, s, []byte(text))
				for _, k := range s.Keys() {
					if !strings.Contains(fmt.Sprint(before), k.String()) {
						tr.Apply(s, []snapshot.Key{k})
					}
				}
				recordAll(t, tr, s)
			}
			leads := full(input.Config{}, s)
			if text(leads) != text(tr) {
				t.Errorf("%s: a plane that begins to lead differs: %s", c.name, lineDiff(text(tr), text(leads)))
			}
			key := model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.0"), Transport: model.TCP, Port: 80}
			if f := tr.result().Frontends[key]; f == nil || f.Owner.Name != "older" || len(tr.result().Frontends) != 1 {
				t.Fatalf("%s: the frontends are %v", c.name, tr.result().Frontends)
			}
			var loser snapshot.Key
			for _, k := range s.Keys() {
				if k.Name.Name == "younger" {
					loser = k
				}
			}
			status := tr.result().Statuses[input.Object(snapshot.KindService, loser.Name)].Service.Conditions[0]
			if status.Reason != v1alpha1.ReasonPortTaken || !strings.Contains(status.Message, "Service a/older") {
				t.Errorf("%s: the other is told %s: %s", c.name, status.Reason, status.Message)
			}
			gone := snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "a", Name: "older"}}
			s.Delete(gone)
			tr.Apply(s, []snapshot.Key{gone})
			recordAll(t, tr, s)
			if f := tr.result().Frontends[key]; f == nil || f.Owner.Name != "younger" {
				t.Errorf("%s: when the winner went the frontends are %v", c.name, tr.result().Frontends)
			}
		}
	}
}

// TestPermissionEnds holds that a guest goes when the pool lets namespaces share no more, and
// that the VIP and its own Services stay.
func TestPermissionEnds(t *testing.T) {
	s := snapshot.New()
	readYAML(t, s, []byte(shareGround+"---"+sharingService("a", "own", "2024-01-01T00:00:00Z", "k", 80)+"---"+sharingService("b", "guest", "2024-01-01T00:00:00Z", "a/k", 81)))
	tr := Converge(input.Config{}, s)
	if len(tr.result().Frontends) != 2 {
		t.Fatalf("the frontends are %v", tr.result().Frontends)
	}
	n := snapshot.Name{Name: "edge"}
	pool := s.AddressPools[n].DeepCopy()
	pool.Spec.Sharing = nil
	s.AddressPools[n] = pool
	tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindAddressPool, Name: n}})
	recordAll(t, tr, s)
	for key, f := range tr.result().Frontends {
		if f.Owner.Name != "own" || key.Port != 80 {
			t.Errorf("%s is left to %s", key, f.Owner)
		}
	}
	hold := tr.result().Statuses[input.Object(snapshot.KindService, snapshot.Name{Namespace: "b", Name: "guest"})].Hold
	if len(tr.result().Frontends) != 1 || hold == nil || !strings.Contains(hold.Message, "lets no namespaces share") {
		t.Errorf("%d frontends are left, and the guest is told %v", len(tr.result().Frontends), hold)
	}
}
