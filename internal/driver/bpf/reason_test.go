package bpf

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What C says and Go repeats is the same, and the reference explains it.
func TestReasonsAgree(t *testing.T) {
	text, err := os.ReadFile("../../../bpf/lib/reason.h")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`REASON\(([A-Z_0-9]+), "([^"]*)"\)`).FindAllStringSubmatch(string(text), -1)
	if len(found) != len(reasons) || len(reasons) < int(libReasonREASON_COUNT) {
		t.Fatalf("reason.h has %d reasons, its generated form %d, reason.go %d", len(found), libReasonREASON_COUNT, len(reasons))
	}
	for i, r := range found {
		if reasons[i] != r[2] {
			t.Errorf("reason %d is %q in reason.h, %q in reason.go", i, r[2], reasons[i])
		}
	}
	page, err := os.ReadFile("../../../docs/reference/dataplane.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Reasons() {
		if !strings.Contains(string(page), "\n| `"+r+"` | ") {
			t.Errorf("docs/reference/dataplane.md does not say what %s is", r)
		}
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(r) || strings.Contains(r, "none") {
			t.Errorf("%q is no name of a reason", r)
		}
	}
}
