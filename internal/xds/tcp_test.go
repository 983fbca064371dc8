package xds

import (
	"testing"
	"time"

	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"fairlead.dev/internal/model"
)

// TestSilenceOfConnections holds how long connections of bytes may be silent, and that a ClientPolicy says otherwise.
func TestSilenceOfConnections(t *testing.T) {
	for _, c := range []struct {
		clients *model.ClientSettings
		want    time.Duration
	}{
		{nil, 150 * time.Minute},
		{&model.ClientSettings{MaxConnections: 1}, 150 * time.Minute},
		{&model.ClientSettings{IdleTimeout: time.Minute}, time.Minute},
	} {
		f := tcpProxy(model.Listener{ID: "https-1", Port: 1, Protocol: model.ProtocolHTTPS, Clients: c.clients}, []model.WeightedGroup{{Group: "ns/b/1", Weight: 1}}, Options{})
		var proxy tcpproxyv3.TcpProxy
		if err := f.GetTypedConfig().UnmarshalTo(&proxy); err != nil {
			t.Fatal(err)
		}
		if got := proxy.GetIdleTimeout().AsDuration(); got != c.want {
			t.Errorf("%+v: silent for %v, want %v", c.clients, got, c.want)
		}
	}
}
