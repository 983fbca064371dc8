package gate

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"fairlead.dev/internal/delta"
)

func TestAdviceNamesThePortAndTheWayOut(t *testing.T) {
	r, err := delta.NewResource("http-80", &listenerv3.Listener{Name: "http-80", Address: &corev3.Address{
		Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "::", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	it := &item{key: key{kind: typeListener, name: "http-80"}, target: &r}
	for said, want := range map[string]string{
		"http-80: cannot bind '[::]:80': Address already in use\n": "port 80 is in use by another process",
		"http-80: cannot bind '[::]:80': Permission denied\n":      "Envoy may not listen at port 80: run the agent as root",
		"http-80: no filter chain\n":                               "http-80: no filter chain",
	} {
		got := advise(it, said)
		if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, strings.TrimSpace(said)) {
			t.Errorf("%q: got %q", said, got)
		}
	}
}
