package status

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// Reasons of Events that no condition has.
const (
	reasonAddressAssigned = "AddressAssigned"
	reasonAddressReleased = "AddressReleased"
)

// happening is one Event to come.
type happening struct{ kind, reason, note string }

// happened is what people wait for that a status shows after a write, and did not before:
// addresses, and transitions of the conditions that are awaited. It is pure. A condition that
// is first shown as unknown, or as not programmed yet, is none.
func happened(before, after client.Object) (all []happening) {
	if was, is := shownAddresses(before), shownAddresses(after); !slices.Equal(was, is) {
		if len(is) > 0 {
			all = append(all, happening{corev1.EventTypeNormal, reasonAddressAssigned, strings.Join(is, ", ")})
		} else {
			all = append(all, happening{corev1.EventTypeWarning, reasonAddressReleased, strings.Join(was, ", ")})
		}
	}
	was := conditionsOf(before)
	for _, now := range conditionsOf(after) {
		at := slices.IndexFunc(was, func(s shown) bool { return s.of == now.of && s.Type == now.Type })
		known := at >= 0 && was[at].Status != metav1.ConditionUnknown
		switch {
		case !isAwaited(now.Type) || now.Status == metav1.ConditionUnknown:
		case known && was[at].Status == now.Status && (now.Status == metav1.ConditionTrue || was[at].Reason == now.Reason):
		case now.Status == metav1.ConditionTrue:
			all = append(all, happening{corev1.EventTypeNormal, now.Type, now.text()})
		case now.Type == string(gatewayv1.GatewayConditionProgrammed) && !known:
		default:
			all = append(all, happening{corev1.EventTypeWarning, cmp.Or(now.Reason, "Not"+now.Type), now.Type + " is false: " + now.text()})
		}
	}
	return all
}

// isAwaited says whether people wait for the condition to be true.
func isAwaited(conditionType string) bool {
	return slices.Contains([]string{
		string(gatewayv1.GatewayConditionAccepted), string(gatewayv1.GatewayConditionProgrammed), string(gatewayv1.GatewayConditionResolvedRefs),
		v1alpha1.MachineReady,
	}, conditionType)
}

// shown is a condition, and what of the object it is of: a parent or an ancestor; empty is the
// object itself.
type shown struct {
	of string
	metav1.Condition
}

func (s shown) text() string {
	if s.of == "" {
		return s.Message
	}
	return s.of + ": " + s.Message
}

func conditionsOf(o client.Object) (all []shown) {
	add := func(of string, conditions []metav1.Condition) {
		for _, c := range conditions {
			all = append(all, shown{of, c})
		}
	}
	if route := snapshot.RouteStatus(o); route != nil {
		for _, p := range route.Parents {
			add(referenceName(p.ParentRef), p.Conditions)
		}
		return all
	}
	switch o := o.(type) {
	case *gatewayv1.Gateway:
		add("", o.Status.Conditions)
	case *v1alpha1.AddressPool:
		add("", o.Status.Conditions)
	case *v1alpha1.BGPPeer:
		add("", o.Status.Conditions)
	case *v1alpha1.Machine:
		add("", o.Status.Conditions)
	case *contourv1beta1.IngressRoute:
		// Contour's status has no conditions: a word, and why.
		c := metav1.Condition{Type: string(gatewayv1.RouteConditionAccepted), Status: metav1.ConditionFalse, Reason: o.Status.CurrentStatus, Message: o.Status.Description}
		switch o.Status.CurrentStatus {
		case "":
			return nil
		case "valid":
			c.Status = metav1.ConditionTrue
		}
		add("", []metav1.Condition{c})
	}
	return all
}

// referenceName is a parent's, as people write it.
func referenceName(r gatewayv1.ParentReference) string {
	name := string(r.Name)
	if r.Namespace != nil {
		name = string(*r.Namespace) + "/" + name
	}
	if r.SectionName != nil {
		name += "/" + string(*r.SectionName)
	}
	return name
}

func shownAddresses(o client.Object) (all []string) {
	switch o := o.(type) {
	case *corev1.Service:
		for _, i := range o.Status.LoadBalancer.Ingress {
			all = append(all, i.IP)
		}
	case *gatewayv1.Gateway:
		for _, a := range o.Status.Addresses {
			all = append(all, a.Value)
		}
	}
	return all
}

// Teller writes Events of what happened. client-go's recorder counts those that are alike in
// one Event, and lets 25 of one object through at once and then one in five minutes. They are
// hints for people: what cannot be written is dropped.
type Teller struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	limiter     *rate.Limiter
}

const (
	// eventRate bounds Events a second, of all objects together: a plane that starts with
	// thousands of routes tells of the first, and later of what changes.
	eventRate  = 5
	eventBurst = 100
	// eventLength bounds the text of one, bytes (validation of core/v1 Events).
	eventLength = 1024
)

// NewTeller begins to write; stop ends it.
func NewTeller(ctx context.Context, c client.Client) *Teller {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(eventSink{ctx, c})
	return &Teller{b, b.NewRecorder(c.Scheme(), corev1.EventSource{Component: "fairlead"}), rate.NewLimiter(eventRate, eventBurst)}
}

// Tell writes Events of what a write changed, unless there were too many just now.
func (t *Teller) Tell(before, after client.Object) {
	for _, h := range happened(before, after) {
		// What is wrong has the second half of the burst to itself.
		if h.kind == corev1.EventTypeNormal && t.limiter.Tokens() < eventBurst/2 || !t.limiter.Allow() {
			continue
		}
		t.recorder.Event(after, h.kind, h.reason, strings.ToValidUTF8(h.note[:min(len(h.note), eventLength)], ""))
	}
}

// Stop ends the writing.
func (t *Teller) Stop() { t.broadcaster.Shutdown() }

// eventSink writes Events by a client of controller-runtime.
type eventSink struct {
	ctx    context.Context
	client client.Client
}

var _ record.EventSink = eventSink{}

func (s eventSink) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, WriteTimeout)
}

// Create implements record.EventSink.
func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := s.bounded()
	defer cancel()
	return e, s.client.Create(ctx, e)
}

// Update implements record.EventSink.
func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := s.bounded()
	defer cancel()
	return e, s.client.Update(ctx, e)
}

// Patch implements record.EventSink.
func (s eventSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	ctx, cancel := s.bounded()
	defer cancel()
	patched := e.DeepCopyObject().(*corev1.Event)
	return patched, s.client.Patch(ctx, patched, client.RawPatch(types.StrategicMergePatchType, data))
}
