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
var profiles = []suite.ConformanceProfile{suite.GatewayHTTPConformanceProfile, suite.GatewayGRPCConformanceProfile}

// unsupported are the features of the profiles that Fairlead does not have, and why.
// None is left.
var unsupported = map[features.FeatureName]string{}

// untested are features that a GatewayClass declares and of which the suite has not been run
// yet: those of the profiles for TLS, TCP and UDP, whose backends need the kernel's balancing
// on the suite's nodes.
var untested = []features.FeatureName{
	features.SupportTCPRoute, features.SupportTLSRoute, features.SupportTLSRouteModeMixed, features.SupportTLSRouteModeTerminate, features.SupportUDPRoute,
}

// channel is a set of definitions of the Gateway API.
type channel string

const (
	// standard is the channel that Fairlead installs.
	standard channel = features.FeatureChannelStandard
	// experimental has the fields that may still change too.
	experimental channel = features.FeatureChannelExperimental
)

// supported are the features of the profiles that work with a channel's definitions, in
// order: fields of the other channel are dropped by the API before Fairlead sees them.
func supported(c channel) []features.FeatureName {
	// In no profile's list, although it belongs to one.
	names := []features.FeatureName{features.SupportGRPCRouteNamedRouteRule}
	for _, p := range profiles {
		for name := range p.CoreFeatures.Union(p.ExtendedFeatures) {
			_, no := unsupported[name]
			if !no && (c == experimental || features.GetFeature(name).Channel == features.FeatureChannelStandard) {
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
		if !slices.Contains(untested, features.FeatureName(name)) {
			declared = append(declared, features.FeatureName(name))
		}
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
