package agent

import (
	"slices"
	"testing"
)

// Tunnels end at the first: not at the bridge of a container network that sorts before it.
func TestAddressesThatTheMachineSendsFromAreFirst(t *testing.T) {
	t.Parallel()
	list := []string{"10.244.1.1", "10.77.2.1", "2001:db8::1"}
	for _, c := range []struct{ first, want []string }{
		{[]string{"10.77.2.1"}, []string{"10.77.2.1", "10.244.1.1", "2001:db8::1"}},
		{[]string{"10.77.2.1", "2001:db8::1"}, []string{"10.77.2.1", "2001:db8::1", "10.244.1.1"}},
		{[]string{"127.0.0.1"}, list},
		{nil, list},
	} {
		if got := preferred(slices.Clone(list), c.first); !slices.Equal(got, c.want) {
			t.Errorf("%v first: %v, want %v", c.first, got, c.want)
		}
	}
}
