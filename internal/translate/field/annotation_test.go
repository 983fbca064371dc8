package field

import (
	"fmt"
	"strings"
	"testing"

	"fairlead.dev/api/v1alpha1"
)

// TestManyUnknownAnnotations holds that the first few annotations that nothing reads are named, and the others counted.
func TestManyUnknownAnnotations(t *testing.T) {
	many := map[string]string{}
	for n := range 3000 {
		many[fmt.Sprintf("fairlead.dev/%04x", n)] = ""
	}
	if notes := UnknownAnnotations(many, "fairlead.dev/address-pool"); len(notes) != 6 || !strings.HasPrefix(notes[4], "metadata.annotations[fairlead.dev/0004]: nothing reads it; ") ||
		notes[5] != "metadata.annotations: nothing reads 2995 more of fairlead.dev" {
		t.Errorf("it says %q", notes)
	}
	if notes := UnknownAnnotations(map[string]string{v1alpha1.AnnotationChangedBy: "alice"}); len(notes) != 0 {
		t.Errorf("of what the API itself writes it says %q", notes)
	}
}
