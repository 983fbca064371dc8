package agent

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
)

// A method that Envoy has no name for is none; its placeholder is no method of a client.
func TestTapRecordOfAnUnknownMethod(t *testing.T) {
	for method, want := range map[corev3.RequestMethod]string{corev3.RequestMethod_METHOD_UNSPECIFIED: "", corev3.RequestMethod_GET: "GET"} {
		if r := tapRecord(&datav3.HTTPAccessLogEntry{Request: &datav3.HTTPRequestProperties{RequestMethod: method}}); r.Method != want {
			t.Errorf("%s: method %q", method, r.Method)
		}
	}
	if r := tapRecord(&datav3.HTTPAccessLogEntry{}); r.Method != "" {
		t.Errorf("without a request: method %q", r.Method)
	}
}
