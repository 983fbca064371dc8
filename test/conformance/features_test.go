package conformance

import (
	"slices"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"

	"fairlead.dev/internal/translate"
)

// profiles are those that Fairlead conforms to.
var profiles = []suite.ConformanceProfile{
	suite.GatewayHTTPConformanceProfile, suite.GatewayGRPCConformanceProfile,
	suite.GatewayTLSConformanceProfile, suite.GatewayTCPConformanceProfile, suite.GatewayUDPConformanceProfile,
}

// unsupported are the features of the profiles that Fairlead does not have, and why.
// None is left.
var unsupported = map[features.FeatureName]string{}

// channel is a set of definitions of the Gateway API.
type channel string

const (
	// standard is the channel that Fairlead installs.
	standard channel = features.FeatureChannelStandard
	// experimental has the fields that may still change too.
	experimental channel = features.FeatureChannelExperimental
)

// fieldless are features that belong to the experimental channel and need no field of it.
var fieldless = []features.FeatureName{features.SupportTLSRouteModeMixed}

// supported are the features of the profiles that work with a channel's definitions, in
// order: fields of the other channel are dropped by the API before Fairlead sees them.
func supported(c channel) []features.FeatureName {
	// In no profile's list, although it belongs to one.
	names := []features.FeatureName{features.SupportGRPCRouteNamedRouteRule}
	for _, p := range profiles {
		for name := range p.CoreFeatures.Union(p.ExtendedFeatures) {
			_, no := unsupported[name]
			works := c == experimental || features.GetFeature(name).Channel == features.FeatureChannelStandard || slices.Contains(fieldless, name)
			if !no && works {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// needs reports whether a test needs no more than these features.
func needs(test suite.ConformanceTest, names []features.FeatureName) bool {
	return !slices.ContainsFunc(test.Features, func(f features.FeatureName) bool { return !slices.Contains(names, f) })
}

// A GatewayClass says what the suite tests, no more and no less.
func TestDeclaredFeatures(t *testing.T) {
	var declared []features.FeatureName
	for _, name := range translate.Features() {
		declared = append(declared, features.FeatureName(name))
	}
	if tested := supported(experimental); !slices.Equal(declared, tested) {
		t.Errorf("a GatewayClass declares %v, and the suite tests %v", declared, tested)
	}
}

// selected are the suite's tests that run with a channel: all that need no more than what
// is supported, and with the experimental one, unless all are wanted, only those that the
// standard one cannot run. If one is named, only that.
func selected(c channel, all bool, only string) []suite.ConformanceTest {
	var run []suite.ConformanceTest
	for _, test := range tests.ConformanceTests {
		if only != "" {
			if test.ShortName == only {
				run = append(run, test)
			}
			continue
		}
		if needs(test, supported(c)) && (all || c == standard || !needs(test, supported(standard))) {
			run = append(run, test)
		}
	}
	return run
}

// addressType is that of all addresses here.
var addressType = gatewayv1.IPAddressType
