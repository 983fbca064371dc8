package conformance

import (
	"slices"

	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// profiles are those that Fairlead conforms to.
var profiles = []suite.ConformanceProfileName{suite.GatewayHTTPConformanceProfileName, suite.GatewayGRPCConformanceProfileName}

// unsupported are the features of the profiles that Fairlead does not declare, and why.
var unsupported = map[features.FeatureName]string{}

// supported are all features of the profiles but those, in order.
func supported() []features.FeatureName {
	var names []features.FeatureName
	for _, p := range []suite.ConformanceProfile{suite.GatewayHTTPConformanceProfile, suite.GatewayGRPCConformanceProfile} {
		for name := range p.CoreFeatures.Union(p.ExtendedFeatures) {
			if _, no := unsupported[name]; !no {
				names = append(names, name)
			}
		}
	}
	// In no profile's list, although the profile's tests use it.
	names = append(names, features.SupportGRPCRouteNamedRouteRule)
	slices.Sort(names)
	return slices.Compact(names)
}
