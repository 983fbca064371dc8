package plane

import (
	"os"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/xds"
)

// What the API lets be asked for is what proxies can write.
func TestAccessLogFields(t *testing.T) {
	var fields []string
	for _, f := range v1alpha1.AccessLogFields() {
		fields = append(fields, string(f))
	}
	slices.Sort(fields)
	if !slices.Equal(fields, xds.AccessLogFields()) {
		t.Errorf("the API has %v, Envoy %v", fields, xds.AccessLogFields())
	}
	reference, err := os.ReadFile("../../docs/reference/clientpolicy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if !strings.Contains(string(reference), "`"+f+"`") {
			t.Errorf("the reference does not name the field %s", f)
		}
	}
}
