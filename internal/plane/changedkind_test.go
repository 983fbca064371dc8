package plane

import (
	"strings"
	"testing"
)

func TestChangedKind(t *testing.T) {
	for _, kind := range []string{"HTTPRoute", "httproute", "Secret", "Upstream"} {
		if err := ChangedKind(kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for kind, end := range map[string]string{
		"HTTPRout": "; did you mean HTTPRoute?", "gateways": "; did you mean Gateway?", "EndpointSlice": "UDPRoute and Upstream", "shop": "UDPRoute and Upstream",
	} {
		err := ChangedKind(kind)
		if err == nil || !strings.HasPrefix(err.Error(), `no changes are kept of kind "`+kind+`", only of AddressPool, `) || !strings.HasSuffix(err.Error(), end) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
