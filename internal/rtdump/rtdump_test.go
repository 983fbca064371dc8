package rtdump

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWhole(t *testing.T) {
	interrupted := fmt.Errorf("list interfaces: %w", netlink.ErrDumpInterrupted)
	broken := errors.New("no buffer space")
	for name, c := range map[string]struct {
		answers []error // the last one's stands for all that follow
		calls   int
		err     error
	}{
		"at once":      {[]error{nil}, 1, nil},
		"at the third": {[]error{interrupted, interrupted, nil}, 3, nil},
		"never":        {[]error{interrupted}, tries, netlink.ErrDumpInterrupted},
		"another":      {[]error{interrupted, broken}, 2, broken},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			list, err := Whole(func() ([]int, error) {
				calls++
				return []int{calls}, c.answers[min(calls, len(c.answers))-1]
			})
			if calls != c.calls || !errors.Is(err, c.err) || len(list) != 1 || list[0] != calls {
				t.Errorf("%d calls, %v, %v; want %d, %v", calls, list, err, c.calls, c.err)
			}
		})
	}
}
