package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"fairlead.dev/lab"
)

// survivalEvent is one thing that happens to the site. What it leaves is the beginning of
// the next, unless it is undone.
type survivalEvent struct {
	name string
	// only and not restrict it to modes.
	only, not SurvivalMode
	// do has it happen, and names who died: a machine's name, or of a proxy its address.
	do   func(context.Context) (dead string, err error)
	undo func(context.Context) error
}

// events are everything that befalls the site, in order.
func (s *survivalSite) events() []survivalEvent {
	quiet := func(f func(context.Context) error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return "", f(ctx) }
	}
	last, lastNode := s.edges[survivalEdges-1], s.nodes[survivalNodes-1]
	all := s.edges
	without := func(gone *lab.Machine) (rest []*lab.Machine) {
		for _, m := range all {
			if m != gone {
				rest = append(rest, m)
			}
		}
		return rest
	}
	join := func(ctx context.Context) error {
		if err := s.patchMachine(ctx, last.Name(), `{"metadata":{"labels":{"`+member+`":"in"}}}`); err != nil {
			return err
		}
		return s.awaitEdges(ctx, all)
	}
	cordon := func(m *lab.Machine, on bool) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := s.patchMachine(ctx, m.Name(), fmt.Sprintf(`{"spec":{"cordoned":%t}}`, on)); err != nil {
				return err
			}
			if on {
				return s.awaitEdges(ctx, without(m))
			}
			return s.awaitEdges(ctx, all)
		}
	}
	vanish := func(m *lab.Machine) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			if err := m.SetBlackhole(true); err != nil {
				return "", err
			}
			return m.Addr4().String(), s.awaitEdges(ctx, without(m))
		}
	}
	appear := func(m *lab.Machine) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := m.SetBlackhole(false); err != nil {
				return err
			}
			return s.awaitEdges(ctx, all)
		}
	}
	leave := func(ctx context.Context) error {
		if err := s.patchMachine(ctx, last.Name(), `{"metadata":{"labels":{"`+member+`":null}}}`); err != nil {
			return err
		}
		return s.awaitEdges(ctx, without(last))
	}
	return []survivalEvent{
		{name: "a load balancer joins", do: quiet(join)},
		{name: "a load balancer drains", do: quiet(cordon(s.edges[0], true))},
		{name: "it joins again", do: quiet(cordon(s.edges[0], false))},
		{name: "a load balancer dies without warning", do: vanish(s.edges[1])},
		{name: "it comes back", do: quiet(appear(s.edges[1]))},
		{name: "a backend comes", do: quiet(s.admit(lastNode))},
		{name: "a backend goes from 100 to 40", not: SurvivalProxies, do: quiet(s.weigh(s.nodes[1], 40))},
		{name: "it goes from 40 to 100, and a load balancer leaves", not: SurvivalProxies, do: quiet(both(s.weigh(s.nodes[1], 100), leave))},
		{name: "a load balancer leaves", only: SurvivalProxies, do: quiet(leave)},
		{name: "a backend drains while a load balancer joins", do: quiet(both(s.drain(s.nodes[0]), join))},
		{name: "it takes flows again while a load balancer drains", do: quiet(both(s.drain(), cordon(s.edges[2], true))), undo: cordon(s.edges[2], false)},
		{name: "a backend leaves while a load balancer dies", do: func(ctx context.Context) (string, error) {
			if err := s.dismiss(lastNode)(ctx); err != nil {
				return "", err
			}
			return vanish(s.edges[1])(ctx)
		}, undo: appear(s.edges[1])},
		{name: "a backend dies", do: func(ctx context.Context) (string, error) {
			s.servers[s.nodes[2].Name()].Kill9()
			return s.nodes[2].Name(), nil
		}, undo: func(ctx context.Context) error { return s.startBackend(ctx, s.nodes[2]) }},
	}
}

// both has two things happen at once.
func both(first, second func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		var wait sync.WaitGroup
		var errs [2]error
		wait.Go(func() { errs[0] = first(ctx) })
		wait.Go(func() { errs[1] = second(ctx) })
		wait.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// admit has the Service have a node's backend.
func (s *survivalSite) admit(n *lab.Machine) func(context.Context) error {
	return func(ctx context.Context) error {
		s.in = append(s.in[:len(s.in):len(s.in)], n)
		return s.apply(ctx, s.slice())
	}
}

// dismiss has it no longer; the backend serves on.
func (s *survivalSite) dismiss(n *lab.Machine) func(context.Context) error {
	return func(ctx context.Context) error {
		var rest []*lab.Machine
		for _, m := range s.in {
			if m != n {
				rest = append(rest, m)
			}
		}
		s.in = rest
		return s.apply(ctx, s.slice())
	}
}

// weigh gives a node's backend a weight.
func (s *survivalSite) weigh(n *lab.Machine, weight int) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.apply(ctx, s.policyManifest(map[netip.Addr]int{n.Addr4(): weight}))
	}
}

// drain has the backends of these nodes drained, and no others.
func (s *survivalSite) drain(nodes ...*lab.Machine) func(context.Context) error {
	return func(ctx context.Context) error {
		var addresses []string
		for _, n := range nodes {
			addresses = append(addresses, n.Addr4().String())
		}
		annotations := fmt.Sprintf(", annotations: {fairlead.dev/drained-backends: %q}", strings.Join(addresses, ","))
		if len(nodes) == 0 {
			annotations = ", annotations: {}"
		}
		return s.apply(ctx, strings.Replace(s.serviceManifest(), "namespace: default", "namespace: default"+annotations, 1))
	}
}
