package translate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// TestWhatIsInForceGoesBeforeTheStatus holds that settings that were in force when a bad edit came
// stay, though the status, which is written later, still shows older ones.
func TestWhatIsInForceGoesBeforeTheStatus(t *testing.T) {
	spec := func(med int64) *v1alpha1.BGPPeerSpec {
		return &v1alpha1.BGPPeerSpec{Address: "192.0.2.1", LocalASN: 65001, PeerASN: 65000, PathAttributes: v1alpha1.PathAttributes{MED: &med}}
	}
	s := snapshot.New()
	bad := &v1alpha1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "router"}, Spec: *spec(3), Status: v1alpha1.BGPPeerStatus{InForce: spec(1)}}
	bad.Spec.Prepend = 17
	for _, o := range []metav1.Object{&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, bad} {
		setAll(t, s, o)
	}
	incremental := New(input.Config{})
	incremental.graph.Strict()
	med := func(changed ...snapshot.Key) uint32 {
		t.Helper()
		tr := full(input.Config{}, s)
		incremental.Apply(s, changed)
		if want, got := text(tr), text(incremental); want != got {
			t.Fatalf("the incremental result is not the full one; %s", lineDiff(want, got))
		}
		peers := tr.Desired().Peers
		if len(peers) != 1 || peers[0].Path.MED == nil {
			t.Fatalf("the peers are %+v", peers)
		}
		return *peers[0].Path.MED
	}
	if got := med(s.Keys()...); got != 1 {
		t.Errorf("the MED is %d, want that of the status", got)
	}
	router := snapshot.Key{Kind: snapshot.KindBGPPeer, Name: snapshot.Name{Name: "router"}}
	s.PeersInForce[router.Name] = spec(2)
	if got := med(router); got != 2 {
		t.Errorf("the MED is %d, want that of the last translation", got)
	}
	s.Delete(router)
	if _, err := s.Set(bad); err != nil {
		t.Fatal(err)
	}
	if got := med(router); got != 1 {
		t.Errorf("the MED of a peer that was created again is %d, want that of the status", got)
	}
}
