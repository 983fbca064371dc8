package catalog

import (
	"strings"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Key names one resource.
type Key struct {
	Type delta.Type
	Name string
	// Where the resource comes from, whichever the type needs.
	Listener model.ListenerID
	shard    int
	group    model.GroupID
	Host     string // one of a shard, in unfit alone
}

// ClusterKey names the cluster of a group.
func ClusterKey(g model.GroupID) Key {
	return Key{Type: agentv1.ClusterType, Name: string(g), group: g}
}

func endpointsKey(g model.GroupID, name string) Key {
	return Key{Type: agentv1.EndpointType, Name: name, group: g}
}

// ListenerKey names the resource of a listener over TCP.
func ListenerKey(l model.ListenerID) Key {
	return Key{Type: agentv1.ListenerType, Name: string(l), Listener: l}
}

// RoutesKey names the routes of a shard.
func RoutesKey(l model.ListenerID, shard int) Key {
	return Key{Type: agentv1.RouteType, Name: xds.RouteConfigurationName(l, shard), Listener: l, shard: shard}
}

func quicKey(id model.ListenerID) Key {
	return Key{Type: agentv1.ListenerType, Name: xds.QUICListenerName(id), Listener: id}
}

// SecretKey names a Secret.
func SecretKey(name string) Key { return Key{Type: agentv1.SecretType, Name: name} }

// HostKey is the key under which unfit has one host of a shard.
func HostKey(shard Key, host string) Key {
	shard.Name, shard.Host = shard.Name+"/"+host, host
	return shard
}

// touched is what one Apply found changed, per view and by resource.
type touched map[model.ViewID]map[Key]bool

func (t touched) add(view model.ViewID, k Key) {
	if t[view] == nil {
		t[view] = map[Key]bool{}
	}
	t[view][k] = true
}

// ShortType is the last word of a type, a label of metrics.
func ShortType(t delta.Type) string {
	return string(t)[strings.LastIndexByte(string(t), '.')+1:]
}
