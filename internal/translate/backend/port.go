package backend

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Port is one port of a Service, with everything that its annotations and policies say of it.
type Port struct {
	Number      int32
	Name        string
	protocol    corev1.Protocol
	appProtocol string
	discovered  string   // the Upstream that the Service comes from; empty: none
	Upstream    string   // what annotations say, see upstreamsOf
	Undrained   string   // why annotations drain less than they name; empty: nothing is wrong
	Refusal     string   // of the Service's endpoints
	Misread     string   // of the Service's EndpointSlices
	MetricsNote string   // why the Service's annotation asks for no metrics of backends; empty: nothing is wrong
	Unread      []string // of the Service's limits
	Options     Options
}

// appProtocol is what an appProtocol says of a port's backends.
type appProtocol struct{ secure, http2, websocket bool }

// IsWebSocket reports whether the port's appProtocol asks for WebSocket upgrades.
func (p Port) IsWebSocket() bool { return p.protocolOfApp().websocket }

// protocolOfApp reads the names of KEP-3726, IANA's, and those that meshes know. Others
// say nothing.
func (p Port) protocolOfApp() appProtocol {
	switch strings.ToLower(p.appProtocol) {
	case "kubernetes.io/h2c", "h2c", "http2", "grpc":
		return appProtocol{http2: true}
	case "kubernetes.io/ws", "ws":
		return appProtocol{websocket: true}
	case "kubernetes.io/wss", "wss":
		return appProtocol{secure: true, websocket: true}
	case "https":
		return appProtocol{secure: true}
	}
	return appProtocol{}
}

// PortKey names a port of a Service, whose backends are a set.
type PortKey struct {
	Service   snapshot.Name
	Number    int32
	Transport model.Transport
}

// ID is "namespace/service/port", with "/UDP" where the port is of that.
func (k PortKey) ID() model.SetID {
	id := k.Service.Namespace + "/" + k.Service.Name + "/" + strconv.Itoa(int(k.Number))
	if k.Transport == model.UDP {
		id += "/" + string(model.UDP)
	}
	return model.SetID(id)
}

// PortOfSet is the port whose set an ID names; names of Kubernetes have no slashes.
func PortOfSet(id model.SetID) (k PortKey, ok bool) {
	parts := strings.Split(string(id), "/")
	if len(parts) < 3 || len(parts) > 4 || len(parts) == 4 && parts[3] != string(model.UDP) {
		return PortKey{}, false
	}
	number, err := strconv.ParseInt(parts[2], 10, 32)
	k = PortKey{snapshot.Name{Namespace: parts[0], Name: parts[1]}, int32(number), model.TCP}
	if len(parts) == 4 {
		k.Transport = model.UDP
	}
	return k, err == nil
}

// protocol is the transport as Services name it.
func (k PortKey) protocol() corev1.Protocol { return corev1.Protocol(k.Transport) }
