package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

func TestGatewayAPI(t *testing.T) {
	_ = suite.ConformanceOptions{}
}
