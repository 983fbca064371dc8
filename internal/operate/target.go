package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/near"
)

const (
	// askTime bounds the questions of Warnings.
	askTime = 3 * time.Second
	// writeTries bounds writes over what others write at the same time.
	writeTries = 10
	// proxyOff is the state of the proxy of a machine that has backends only.
	proxyOff = "off"
)

// Target is what can be drained: a machine, or a backend of a Service.
type Target struct {
	machine string
	service client.ObjectKey
	backend netip.Addr
}

// ParseTarget reads MACHINE, SERVICE/ADDRESS or NAMESPACE/SERVICE/ADDRESS. A Service without a namespace is in the given one.
func ParseTarget(text, namespace string) (Target, error) {
	parts := strings.Split(text, "/")
	if slices.Contains(parts, "") {
		parts = nil
	}
	switch len(parts) {
	case 1:
		return Target{machine: text}, nil
	case 2:
		parts = append([]string{namespace}, parts...)
	case 3:
	default:
		return Target{}, fmt.Errorf("%q: want the name of a Machine, SERVICE/ADDRESS or NAMESPACE/SERVICE/ADDRESS", text)
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(parts[2], "["), "]"))
	if err != nil {
		return Target{}, fmt.Errorf("%q: %q is no address (without a port; names are not looked up); want SERVICE/ADDRESS or NAMESPACE/SERVICE/ADDRESS", text, parts[2])
	}
	return Target{service: client.ObjectKey{Namespace: parts[0], Name: parts[1]}, backend: a.Unmap()}, nil
}

// String names the target.
func (t Target) String() string {
	if t.machine != "" {
		return "machine " + t.machine
	}
	return fmt.Sprintf("backend %s of Service %s", t.backend, t.service)
}

// Drain orders the target to be drained, and returns a machine's drain time; nil: the drain time of a backend is its
// frontends'.
func (t Target) Drain(ctx context.Context, api client.Client) (*time.Duration, error) {
	return t.set(ctx, api, true)
}

// Undrain takes the order back.
func (t Target) Undrain(ctx context.Context, api client.Client) error {
	_, err := t.set(ctx, api, false)
	return err
}

// set writes down that it is drained, or that it is not any more, and returns a machine's
// drain time; nil: that of a backend is its frontends'.
func (t Target) set(ctx context.Context, api client.Client, is bool) (*time.Duration, error) {
	for try := 1; ; try++ {
		limit, err := t.write(ctx, api, is)
		switch {
		case err == nil:
			return limit, nil
		case apierrors.IsNotFound(err) && t.machine != "":
			return nil, fmt.Errorf("there is no Machine %s%s (a backend is SERVICE/ADDRESS)", t.machine, nearMachines(ctx, api, t.machine))
		case errors.Is(err, errNoBackend):
			return nil, err
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("there is no Service %s (NAMESPACE/SERVICE/ADDRESS, or -n NAMESPACE)", t.service)
		case apierrors.IsForbidden(err):
			return nil, fmt.Errorf("%s: you may not do that: %w (--kubeconfig names another user's)", t, err)
		case !apierrors.IsConflict(err) || try == writeTries:
			return nil, fmt.Errorf("%s %s: %w", map[bool]string{true: "drain", false: "undrain"}[is], t, err)
		}
	}
}

func (t Target) write(ctx context.Context, api client.Client, is bool) (*time.Duration, error) {
	if t.machine != "" {
		m := &v1alpha1.Machine{}
		if err := api.Get(ctx, client.ObjectKey{Name: t.machine}, m); err != nil {
			return nil, err
		}
		before := m.DeepCopy()
		m.Spec.Cordoned = is
		limit := defaultDrainTime
		if m.Spec.DrainTime != nil {
			limit = m.Spec.DrainTime.Duration
		}
		return &limit, api.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	s := &corev1.Service{}
	if err := api.Get(ctx, t.service, s); err != nil {
		return nil, err
	}
	if is {
		if err := t.exists(ctx, api); err != nil {
			return nil, err
		}
	}
	before := s.DeepCopy()
	text := withAddress(s.Annotations[v1alpha1.AnnotationDrainedBackends], t.backend, is)
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
func (t Target) exists(ctx context.Context, api client.Client) error {
	var list discoveryv1.EndpointSliceList
	if err := api.List(ctx, &list, client.InNamespace(t.service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: t.service.Name}); err != nil {
		return nil
	}
	var there []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && a.Unmap() == t.backend {
					return nil
				}
				there = append(there, text)
			}
		}
	}
	slices.Sort(there)
	if there = slices.Compact(there); len(there) == 0 {
		return fmt.Errorf("%w: Service %s has no endpoints", errNoBackend, t.service)
	}
	const most = 10
	more := ""
	if len(there) > most {
		there, more = there[:most], " and more"
	}
	return fmt.Errorf("%w: Service %s has %s%s", errNoBackend, t.service, strings.Join(there, ", "), more)
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

// Warnings name the consequences of draining the target that an operator may not expect. A plane that does not answer is
// a warning, too.
func (t Target) Warnings(ctx context.Context, plane Plane) []string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if t.machine == "" {
		rows, err := plane.Backends(ctx, "")
		if err != nil {
			return []string{fmt.Sprintf("the plane does not say whether it is the last backend of a frontend: %v", err)}
		}
		return t.lastOf(rows)
	}
	s, err := plane.LeaderStatus(ctx)
	if err != nil {
		return []string{fmt.Sprintf("the plane does not say which VIPs no other machine announces: %v", err)}
	}
	return t.offTheAir(s)
}

// lastOf says of which frontends it is the last backend that takes flows.
func (t Target) lastOf(rows []v1.BackendStatus) []string {
	mine, others := map[v1.FrontendKey]bool{}, map[v1.FrontendKey]bool{}
	for _, r := range rows {
		switch {
		case r.Weight == 0:
		case t.of(r):
			mine[r.Frontend] = true
		default:
			others[r.Frontend] = true
		}
	}
	var out []string
	for _, f := range slices.SortedFunc(maps.Keys(mine), v1.FrontendKey.Compare) {
		if !others[f] {
			out = append(out, fmt.Sprintf("no other backend of %s accepts flows: if no other frontend of the VIP has such a backend, the VIP is withdrawn, and the present flows break", f))
		}
	}
	return out
}

// offTheAir says which VIPs go off the air with a machine, and what of it goes on.
func (t Target) offTheAir(s v1.Status) []string {
	var out []string
	for _, v := range t.alone(s.VIPs) {
		out = append(out, fmt.Sprintf("no other machine announces %s (%s): unless one takes over now, clients do not reach it until 'fairlead undrain %s'", v.Address, v.Owner.Describe(), t.machine))
	}
	if slices.ContainsFunc(s.Machines, func(m v1.MachineStatus) bool { return m.Name == t.machine && m.Proxy.State == proxyOff }) {
		out = append(out, fmt.Sprintf("machine %s has backends only, and they go on to take flows: drain each ('fairlead drain SERVICE/ADDRESS'), or take them out of their Services", t.machine))
	}
	return out
}

// alone are the VIPs that only the machine announces: nobody does when it is drained, unless one
// comes to the pool for it. One that stands by takes over.
func (t Target) alone(vips []v1.VIPStatus) []v1.VIPStatus {
	return slices.DeleteFunc(slices.Clone(vips), func(v v1.VIPStatus) bool {
		has := func(here bool, states ...v1.VIPState) bool {
			return slices.ContainsFunc(v.At, func(at v1.VIPAt) bool {
				return (at.Machine == t.machine) == here && slices.Contains(states, at.State)
			})
		}
		return !has(true, v1.VIPAnnounced) || has(false, v1.VIPAnnounced, v1.VIPStandby)
	})
}

// Ordered says what is so as soon as the target is ordered to be drained.
func (t Target) Ordered() string {
	if t.machine != "" {
		return t.String() + " is cordoned"
	}
	return t.String() + " takes nothing new"
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
