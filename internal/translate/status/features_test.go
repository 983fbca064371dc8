package status

import (
	"slices"
	"testing"

	known "sigs.k8s.io/gateway-api/pkg/features"
)

// Features are sorted, as the field asks for, and are names that the Gateway API knows.
func TestFeaturesAreSortedAndKnown(t *testing.T) {
	names := Features()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("features %v", names)
	}
	for _, name := range names {
		if !slices.ContainsFunc(known.AllFeatures.UnsortedList(), func(f known.Feature) bool { return string(f.Name) == string(name) }) {
			t.Errorf("the Gateway API knows no feature %s", name)
		}
	}
	names[0] = "changed"
	if features[0] == "changed" {
		t.Error("who asks for the features can change them")
	}
}
