package input

import (
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// PortOf is the port in a listener's ID.
func PortOf(id model.ListenerID) uint16 {
	_, rest, _ := strings.Cut(string(id), "-")
	text, _, _ := strings.Cut(rest, "_")
	port, _ := strconv.ParseUint(text, 10, 16)
	return uint16(port)
}

// ProtocolOf is what clients speak at a listener.
func ProtocolOf(id model.ListenerID) model.Protocol {
	if IsTLS(id) {
		return model.ProtocolHTTPS
	}
	return model.ProtocolHTTP
}

// GatewayOfListener is the Gateway whose own a listener is.
func GatewayOfListener(id model.ListenerID) (snapshot.Name, bool) {
	_, rest, own := strings.Cut(string(id), "_")
	namespace, name, _ := strings.Cut(rest, "_")
	return snapshot.Name{Namespace: namespace, Name: name}, own
}

// IsTLS reports whether clients speak TLS at a listener.
func IsTLS(id model.ListenerID) bool {
	return strings.HasPrefix(string(id), "https-")
}
