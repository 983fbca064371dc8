package rig

import (
	"context"
	"fmt"
	"strings"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/router"
)

// The autonomous systems of the lab.
const (
	RouterASN = 65000
	EdgeASN   = 65001
)

// RouterOptions say how the lab's router speaks with the edges.
type RouterOptions struct {
	Kind router.Kind
	// BFD between the router and the edges; nil means none.
	BFD *router.BFD
	// Hold time of the sessions; 0 means the router's default.
	Hold time.Duration
	// NoHelper has the router forget routes with the session, whatever the edges ask for.
	NoHelper bool
}

// StartRouter runs a BGP daemon in the lab's router, to which every machine of the
// edges' segment may connect, over IPv4.
func (r *Rig) StartRouter(ctx context.Context, m *lab.Machine, o RouterOptions) (*router.Router, error) {
	net4, _, ok := m.Networks(lab.SegmentEdges)
	if !ok {
		return nil, fmt.Errorf("machine %s is not on segment %s", m.Name(), lab.SegmentEdges)
	}
	id, _, _ := m.On(lab.SegmentEdges)
	return router.Start(ctx, o.Kind, m, router.Config{
		ASN: RouterASN, ID: id,
		Ranges: []router.Range{{Prefix: net4, Peering: router.Peering{
			ASN: EdgeASN, Families: []router.Family{router.IPv4, router.IPv6}, BFD: o.BFD, Hold: o.Hold, Helper: !o.NoHelper,
		}}},
	})
}

// PeerManifest is the BGPPeer with which every machine connects to a lab's router, over
// IPv4 for both families. extra lines are added to its spec.
func PeerManifest(name string, m *lab.Machine, extra ...string) string {
	address, _, _ := m.On(lab.SegmentEdges)
	return fmt.Sprintf(`apiVersion: fairlead.dev/v1alpha1
kind: BGPPeer
metadata: {name: %s}
spec:
  address: %s
  localASN: %d
  peerASN: %d
  holdTime: 3s
  connectRetryTime: 1s
  families: [IPv4, IPv6]
%s`, name, address, EdgeASN, RouterASN, indented(extra))
}

// PoolManifest is an AddressPool of the addresses. extra lines are added to its spec.
func PoolManifest(name string, addresses []string, extra ...string) string {
	return fmt.Sprintf(`apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: %s}
spec:
  addresses: [%s]
%s`, name, `"`+strings.Join(addresses, `", "`)+`"`, indented(extra))
}

func indented(lines []string) string {
	var out strings.Builder
	for _, l := range lines {
		out.WriteString("  " + l + "\n")
	}
	return out.String()
}
