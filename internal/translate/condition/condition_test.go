package condition

import (
	"strings"
	"testing"
)

func TestLimit(t *testing.T) {
	if got := Limit("short é"); got != "short é" {
		t.Errorf("changed to %q", got)
	}
	if got := Limit("a\xffb"); got != "a\uFFFDb" {
		t.Errorf("not UTF-8: %q", got)
	}
	if got := Limit(strings.Repeat("é", 20_000) + "x"); len(got) > messageLimit+8 || !strings.HasSuffix(got, " ...") {
		t.Errorf("%d bytes", len(got))
	}
}
