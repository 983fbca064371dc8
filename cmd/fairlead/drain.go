package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/near"
)

const (
	// drainAsks bounds the question which VIPs go off the air.
	drainAsks = 3 * time.Second
	// drainTries bounds writes over what others write at the same time.
	drainTries = 10
)

func newDrain() *cobra.Command {
	var kubeconfig, address, namespace string
	var timeout time.Duration
	var noWait bool
	c := &cobra.Command{
		Use:        "drain MACHINE|BACKEND",
		SuggestFor: []string{"cordon", "evict"},
		Short:      "Have a machine or a backend take nothing new, and wait until its flows have ended",
		GroupID:    groupData,
		Args:       cobra.ExactArgs(1),
		Long: `Have a machine or a backend keep what it has and take nothing new, and show how many
flows are left until there is none. When the time is over and flows are left, it says so and
fails; the machine or backend stays drained until 'fairlead undrain'. The time is spec.drainTime
of the Machine, of a backend that of the LoadBalancerPolicy of its frontend (30s where there is
none; the longest, if it has several frontends).

MACHINE is the name of a Machine: it is cordoned. It announces no VIP any more, once another
machine does where one is to (35s at most after the last of those came; the drain time begins
then), and its proxy closes connections as they become idle. It is drained when it announces
nothing; that may take 30s more than the drain time, and if it does not, or cannot be asked,
the command fails and says why. Endpoints that are on it go on: drain them, or their node, by
themselves.

BACKEND is SERVICE/ADDRESS or NAMESPACE/SERVICE/ADDRESS: the address is written into the
Service's annotation fairlead.dev/drained-backends. It holds for routes and frontends alike.`,
		Example: `  fairlead drain edge-1
  fairlead drain shop/web/10.0.0.4 --timeout 5m
  fairlead undrain edge-1`,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := parseDrained(args[0], namespace)
			if err != nil {
				return usageError{command: c.CommandPath(), err: err}
			}
			planeConsole, err := consoleClient("plane-console", address)
			if err != nil {
				return err
			}
			api, err := apiClient(kubeconfig)
			if err != nil {
				return err
			}
			warnings := d.warnings(c.Context(), planeConsole)
			limit, err := d.set(c.Context(), api, true)
			if err != nil {
				return err
			}
			for _, warning := range warnings {
				fmt.Fprintln(c.ErrOrStderr(), "warning: "+warning)
			}
			if _, err := fmt.Fprintln(c.OutOrStdout(), d.done()); err != nil || noWait {
				return err
			}
			times := drainTimes{limit: limit, withdraws: withdrawTime, silence: silenceTime, settle: settleTime, poll: drainPoll}
			if timeout > 0 {
				if limit != nil { // its agent goes by the Machine's
					times.withdraws += max(0, *limit-timeout)
				}
				times.limit, times.handover = &timeout, timeout+withdrawTime
			}
			return d.await(c.Context(), c.OutOrStdout(), planeConsole, times)
		},
		ValidArgsFunction: completeOne(&address, machineNames),
	}
	kubeconfigFlag(c, &kubeconfig)
	consoleFlag(c, &address)
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of SERVICE")
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0s: the Machine's drain time, of a backend that of its policy")
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until flows have ended")
	complete(c, "namespace")
	complete(c, "timeout")
	return c
}

func newUndrain() *cobra.Command {
	var kubeconfig, namespace string
	address := defaultPlaneConsole // for completions
	c := &cobra.Command{
		Use:        "undrain MACHINE|BACKEND",
		SuggestFor: []string{"uncordon"},
		Short:      "Have a machine or a backend take new work again",
		GroupID:    groupData,
		Args:       cobra.ExactArgs(1),
		Long: `Take back what 'fairlead drain' did: the Machine is not cordoned any more, or the address
goes out of the Service's annotation fairlead.dev/drained-backends.`,
		Example: `  fairlead undrain edge-1
  fairlead undrain shop/web/10.0.0.4`,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := parseDrained(args[0], namespace)
			if err != nil {
				return usageError{command: c.CommandPath(), err: err}
			}
			api, err := apiClient(kubeconfig)
			if err != nil {
				return err
			}
			if _, err := d.set(c.Context(), api, false); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s takes new work again\n", d)
			return err
		},
		ValidArgsFunction: completeOne(&address, machineNames),
	}
	kubeconfigFlag(c, &kubeconfig)
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of SERVICE")
	complete(c, "namespace")
	return c
}

// drained is a machine, or a backend of a Service.
type drained struct {
	machine string
	service client.ObjectKey
	backend netip.Addr
}

func parseDrained(text, namespace string) (drained, error) {
	parts := strings.Split(text, "/")
	if slices.Contains(parts, "") {
		parts = nil
	}
	switch len(parts) {
	case 1:
		return drained{machine: text}, nil
	case 2:
		parts = append([]string{namespace}, parts...)
	case 3:
	default:
		return drained{}, fmt.Errorf("%q: want the name of a Machine, SERVICE/ADDRESS or NAMESPACE/SERVICE/ADDRESS", text)
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(parts[2], "["), "]"))
	if err != nil {
		return drained{}, fmt.Errorf("%q: %q is no address (without a port; names are not looked up); want SERVICE/ADDRESS or NAMESPACE/SERVICE/ADDRESS", text, parts[2])
	}
	return drained{service: client.ObjectKey{Namespace: parts[0], Name: parts[1]}, backend: a.Unmap()}, nil
}

func (d drained) String() string {
	if d.machine != "" {
		return "machine " + d.machine
	}
	return fmt.Sprintf("backend %s of Service %s", d.backend, d.service)
}

// set writes down that it is drained, or that it is not any more, and returns a machine's
// drain time; nil: that of a backend is its frontends'.
func (d drained) set(ctx context.Context, api client.Client, is bool) (*time.Duration, error) {
	for try := 1; ; try++ {
		limit, err := d.write(ctx, api, is)
		switch {
		case err == nil:
			return limit, nil
		case apierrors.IsNotFound(err) && d.machine != "":
			return nil, fmt.Errorf("there is no Machine %s%s (a backend is SERVICE/ADDRESS)", d.machine, nearMachines(ctx, api, d.machine))
		case errors.Is(err, errNoBackend):
			return nil, err
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("there is no Service %s (NAMESPACE/SERVICE/ADDRESS, or -n NAMESPACE)", d.service)
		case apierrors.IsForbidden(err):
			return nil, fmt.Errorf("%s: you may not do that: %w (--kubeconfig names another user's)", d, err)
		case !apierrors.IsConflict(err) || try == drainTries:
			return nil, fmt.Errorf("%s %s: %w", map[bool]string{true: "drain", false: "undrain"}[is], d, err)
		}
	}
}

func (d drained) write(ctx context.Context, api client.Client, is bool) (*time.Duration, error) {
	if d.machine != "" {
		m := &v1alpha1.Machine{}
		if err := api.Get(ctx, client.ObjectKey{Name: d.machine}, m); err != nil {
			return nil, err
		}
		before := m.DeepCopy()
		m.Spec.Cordoned = is
		limit := drainDefault
		if m.Spec.DrainTime != nil {
			limit = m.Spec.DrainTime.Duration
		}
		return &limit, api.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	s := &corev1.Service{}
	if err := api.Get(ctx, d.service, s); err != nil {
		return nil, err
	}
	if is {
		if err := d.exists(ctx, api); err != nil {
			return nil, err
		}
	}
	before := s.DeepCopy()
	text := withAddress(s.Annotations[v1alpha1.AnnotationDrainedBackends], d.backend, is)
	switch {
	case text == "":
		delete(s.Annotations, v1alpha1.AnnotationDrainedBackends)
	case s.Annotations == nil:
		s.Annotations = map[string]string{v1alpha1.AnnotationDrainedBackends: text}
	default:
		s.Annotations[v1alpha1.AnnotationDrainedBackends] = text
	}
	return nil, api.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// errNoBackend is the class of backends that are none.
var errNoBackend = errors.New("there is no such backend")

// exists says which backends there are where the one to be drained is none: a slip would
// be found when it is too late. Who may not look is believed.
func (d drained) exists(ctx context.Context, api client.Client) error {
	var list discoveryv1.EndpointSliceList
	if err := api.List(ctx, &list, client.InNamespace(d.service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: d.service.Name}); err != nil {
		return nil
	}
	var there []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && a.Unmap() == d.backend {
					return nil
				}
				there = append(there, text)
			}
		}
	}
	slices.Sort(there)
	if there = slices.Compact(there); len(there) == 0 {
		return fmt.Errorf("%w: Service %s has no endpoints", errNoBackend, d.service)
	}
	const most = 10
	more := ""
	if len(there) > most {
		there, more = there[:most], " and more"
	}
	return fmt.Errorf("%w: Service %s has %s%s", errNoBackend, d.service, strings.Join(there, ", "), more)
}

// nearMachines are the names that may have been meant.
func nearMachines(ctx context.Context, api client.Client, name string) string {
	var list v1alpha1.MachineList
	if err := api.List(ctx, &list); err != nil {
		return ""
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return near.DidYouMean(name, names)
}

// warnings say what whoever drains something may not expect. A plane that does not answer keeps nobody
// from draining.
func (d drained) warnings(ctx context.Context, planeConsole console.Client) []string {
	ctx, cancel := context.WithTimeout(ctx, drainAsks)
	defer cancel()
	if d.machine == "" {
		rows, err := planeConsole.Backends(ctx, "")
		if err != nil {
			return []string{fmt.Sprintf("the plane does not say whether it is the last backend of a frontend: %v", asked(err))}
		}
		return d.lastOf(rows)
	}
	s, err := planeConsole.LeaderStatus(ctx)
	if err != nil {
		return []string{fmt.Sprintf("the plane does not say which VIPs no other machine announces: %v", asked(err))}
	}
	return d.offTheAir(s)
}

// lastOf says of which frontends it is the last backend that takes flows.
func (d drained) lastOf(rows []model.BackendStatus) []string {
	mine, others := map[model.FrontendKey]bool{}, map[model.FrontendKey]bool{}
	for _, r := range rows {
		switch {
		case r.Weight == 0:
		case d.of(r):
			mine[r.Frontend] = true
		default:
			others[r.Frontend] = true
		}
	}
	var out []string
	for _, f := range slices.SortedFunc(maps.Keys(mine), model.FrontendKey.Compare) {
		if !others[f] {
			out = append(out, fmt.Sprintf("no other backend of %s takes flows: where none of the other frontends of the VIP has one, it is withdrawn, and what this one has breaks", f))
		}
	}
	return out
}

// offTheAir says which VIPs go off the air with a machine, and what of it goes on.
func (d drained) offTheAir(s model.Status) []string {
	var out []string
	for _, v := range d.alone(s.VIPs) {
		out = append(out, fmt.Sprintf("no other machine announces %s (%s): unless one takes over now, clients do not reach it until 'fairlead undrain %s'", v.Address, v.Owner.Words(), d.machine))
	}
	if slices.ContainsFunc(s.Machines, func(m model.MachineStatus) bool { return m.Name == d.machine && m.Proxy.State == "off" }) {
		out = append(out, fmt.Sprintf("machine %s has backends only, and they go on to take flows: drain each ('fairlead drain SERVICE/ADDRESS'), or take them out of their Services", d.machine))
	}
	return out
}

// alone are the VIPs that only the machine announces: nobody does when it is drained, unless one
// comes to the pool for it. One that stands by takes over.
func (d drained) alone(vips []model.VIPStatus) []model.VIPStatus {
	return slices.DeleteFunc(slices.Clone(vips), func(v model.VIPStatus) bool {
		has := func(here bool, states ...model.VIPState) bool {
			return slices.ContainsFunc(v.At, func(at model.VIPAt) bool {
				return (at.Machine == d.machine) == here && slices.Contains(states, at.State)
			})
		}
		return !has(true, model.VIPAnnounced) || has(false, model.VIPAnnounced, model.VIPStandby)
	})
}

// done is what is so of it at once.
func (d drained) done() string {
	if d.machine != "" {
		return d.String() + " is cordoned"
	}
	return d.String() + " takes nothing new"
}

// withAddress adds an address to a list, or takes it out. What is no address stays.
func withAddress(list string, a netip.Addr, is bool) string {
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		if b, err := netip.ParseAddr(part); part != "" && (err != nil || b.Unmap() != a) {
			out = append(out, part)
		}
	}
	if is {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}
