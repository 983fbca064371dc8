package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestAddressesOfMachines has a machine report an address at which nobody reaches it, as those of
// container bridges are: the plane does not take it before the Machine's spec names it.
func TestAddressesOfMachines(t *testing.T) {
	s := shared(t)
	m := s.Lab.Machine(edge1.Name)
	const bridge = "192.0.2.200"
	shows := func(ctx context.Context, want ...string) {
		t.Helper()
		err := s.Await(ctx, fmt.Sprintf("Machine %s has %v", m.Name(), want), func(context.Context) error {
			if got := strings.Fields(s.kubectl(t, "get", "machine", m.Name(), "-o", "jsonpath={.status.addresses[*]}")); !same(got, want) {
				return fmt.Errorf("its addresses are %v", got)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	own := []string{m.Addr4().String(), m.Addr6().String()}
	shows(t.Context(), own...)
	do := func(ctx context.Context, args ...string) {
		if out, err := m.Command(ctx, append([]string{"ip"}, args...)...).CombinedOutput(); err != nil {
			t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	do(t.Context(), "link", "add", "bridge0", "type", "veth", "peer", "name", "container0")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context()) // it has ended
		do(ctx, "link", "del", "bridge0")
		s.kubectl(t, "patch", "machine", m.Name(), "--type=merge", "-p", `{"spec": {"addresses": null}}`)
		shows(ctx, own...)
	})
	do(t.Context(), "addr", "add", bridge+"/32", "dev", "bridge0")
	do(t.Context(), "link", "set", "container0", "up")
	do(t.Context(), "link", "set", "bridge0", "up")
	s.await(t, "the condition names the address", func(context.Context) error {
		got := s.kubectl(t, "get", "machine", m.Name(), "-o", `jsonpath={range .status.conditions[?(@.type=="AddressesHeld")]}{.status} {.message}{end}`)
		if !strings.HasPrefix(got, "True ") || !strings.Contains(got, "the agent reports "+bridge+" without having connected from there") {
			return errors.New(got)
		}
		return nil
	})
	shows(t.Context(), own...)
	s.kubectl(t, "patch", "machine", m.Name(), "--type=merge", "-p", `{"spec": {"addresses": ["`+bridge+`"]}}`)
	shows(t.Context(), append([]string{bridge}, own...)...)
}

// same says whether two lists have the same in any order.
func same(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
