package cloud

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The text of an error is bounded and printable, whatever an upstream has written.
func TestErrorText(t *testing.T) {
	long := strings.Repeat("ä", 1<<19)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"short":         {BadAnswer("the answer is no list"), "the answer is no list"},
		"long":          {Classify(errors.New(long), 500), long[:1020] + "…"},
		"wrapped":       {fmt.Errorf("list services: %w", Classify(errors.New(long), 500)), "list services: " + long[:1020] + "…"},
		"wrapped again": {Classify(fmt.Errorf("GET: %w", BadAnswer("%s", long)), 0), "GET: " + long[:1016] + "…"},
		"lines":         {BadAnswer("one\ntwo\x1b[2J\u202ethree"), "one two [2J three"},
		"no UTF-8":      {BadAnswer("a\xffb"), "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.err.Error(); got != c.want {
				t.Errorf("%d bytes: %.100q, want %d: %.100q", len(got), got, len(c.want), c.want)
			}
		})
	}
}
