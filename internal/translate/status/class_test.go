package status

import (
	"testing"
)

func TestOtherReleasesOfTheGatewayAPIAreTold(t *testing.T) {
	for version, want := range map[string]string{
		"v1.6.3": "True SupportedVersion", "v1.6.0-rc.1": "True SupportedVersion", "v1.6": "True SupportedVersion", "v1.6-dev": "True SupportedVersion",
		"v1.5.1": "False UnsupportedVersion", "v1.60.0": "False UnsupportedVersion", "x": "False UnsupportedVersion",
	} {
		if c := supportedVersion(version, 3); string(c.Status)+" "+c.Reason != want || c.ObservedGeneration != 3 {
			t.Errorf("%s: %+v, want %s", version, c, want)
		}
	}
}
