package status

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/translate"
)

// ReasonNoBackends is why a Service is not served although machines balance it: nothing
// takes new flows, and its addresses are not announced.
const ReasonNoBackends = "NoBackends"

// quoting stands before what a message quotes of checks.
const quoting = ", most often: "

// Quote is what a message quotes of checks.
func Quote(text string) string { return quoting + strings.ReplaceAll(text, noting, ", ") }

// noting stands before the notes of a message; no quote has it.
const noting = "; "

// serviceServed words a result as the condition of a Service.
func serviceServed(v progress.Result, idle string, generation int64, live []metav1.Condition) (metav1.Condition, bool) {
	c, known := programmedCondition(v1alpha1.ConditionServed, v, generation, live)
	switch {
	case !known:
		return c, false
	case v.State == progress.Programmed && idle != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonNoBackends, idle
	case v.State == progress.Programmed:
		c.Reason = v1alpha1.ReasonServed
	case v.State == progress.Pending && !v.Machines && v.Reason == "":
		c.Reason = v1alpha1.ReasonNoMachines
	}
	c.Message = strings.ToValidUTF8(c.Message[:min(len(c.Message), 4096)], "")
	return c, true
}

// JudgeService adds to the conditions of a Service how far machines serve it. idle is why nothing takes new
// flows; empty: something does.
func JudgeService(s *translate.Status, v progress.Result, idle string, live []metav1.Condition) *translate.Status {
	c, known := serviceServed(v, idle, s.Generation, live)
	if !known {
		return s // it says itself why it is not served
	}
	if s.Notes != "" {
		c.Message += noting + s.Notes
	}
	n := *s
	n.Service = s.Service.DeepCopy()
	n.Service.Conditions = withProgrammed(n.Service.Conditions, c)
	return &n
}

// RewordDelay is how long a Service that no backend serves may wait for another quote of its
// checks: they may find something else each time.
const RewordDelay = 10 * time.Second

// Requotes says that nothing of what a Service shows would change but the quote of its checks.
func Requotes(live client.Object, s *translate.Status) bool {
	o, is := live.(*corev1.Service)
	if !is || s.Service == nil {
		return false
	}
	o = o.DeepCopy()
	shown := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionServed)
	wanted := meta.FindStatusCondition(s.Service.Conditions, v1alpha1.ConditionServed)
	if shown == nil || wanted == nil || unquoted(shown.Message, s.Notes) != unquoted(wanted.Message, s.Notes) {
		return false
	}
	shown.Message = wanted.Message
	return applyService(*s.Service)(o, metav1.Time{}) == nil
}

// unquoted cuts a message that ends with these notes off where it begins to quote checks. One
// without a quote or with other notes is given back whole.
func unquoted(message, notes string) string {
	if notes != "" {
		bare, is := strings.CutSuffix(message, noting+notes)
		if !is {
			return message
		}
		message = bare
	}
	head, quote, is := strings.Cut(message, quoting)
	if !is || strings.Contains(quote, noting) {
		return message
	}
	return head + quoting
}

// applyService shows the addresses of a Service, and our conditions beside those of
// others.
func applyService(want corev1.ServiceStatus) Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*corev1.Service)
		if !ok {
			return nil
		}
		status := *o.Status.DeepCopy()
		status.LoadBalancer = want.LoadBalancer
		status.Conditions = MergeConditions(o.Status.Conditions, want.Conditions, oursOfService, now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// oursOfService says that a type of condition is ours among those of a Service.
func oursOfService(conditionType string) bool {
	return strings.HasPrefix(conditionType, v1alpha1.GroupVersion.Group+"/")
}

// LeaveService takes our conditions from a Service that is ours no longer. Its addresses stay:
// the API server took ours with the type, and others are another controller's.
func LeaveService(live client.Object, now metav1.Time) client.Object {
	o, ok := live.(*corev1.Service)
	if !ok {
		return nil
	}
	conditions := MergeConditions(o.Status.Conditions, nil, oursOfService, now)
	if len(conditions) == len(o.Status.Conditions) {
		return nil
	}
	n := o.DeepCopy()
	n.Status.Conditions = conditions
	return n
}

// ShowsService says that a Service shows conditions of ours.
func ShowsService(o *corev1.Service) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c metav1.Condition) bool { return oursOfService(c.Type) })
}
