package condition

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Join writes what was found, each problem once, in the order given.
func Join(lists ...[]string) string {
	var all []string
	written := map[string]struct{}{}
	for _, list := range lists {
		for _, p := range list {
			if _, known := written[p]; !known {
				written[p] = struct{}{}
				all = append(all, p)
			}
		}
	}
	return Limit(strings.Join(all, "; "))
}

// Hold says why a resource is not programmed although nothing of it is invalid: it has
// no address yet.
type Hold struct {
	Reason  gatewayv1.GatewayConditionReason `json:"reason"`
	Message string                           `json:"message"`
}

// New returns a condition, its message cut to the API's limit.
func New[T, R ~string](kind T, ok bool, reason R, message string, generation int64) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type: string(kind), Status: status, Reason: string(reason), Message: Limit(message), ObservedGeneration: generation,
	}
}

// WithNotes adds to a message what else is worth knowing.
func WithNotes(message string, notes []string) string {
	return strings.Join(append([]string{message}, notes...), "; ")
}

// Result is a condition before it is written: true unless a reason was found.
type Result[R ~string] struct {
	Failed  bool
	Reason  R
	Message string
}

// Fail keeps the first reason and collects the messages.
func (v *Result[R]) Fail(reason R, message string) {
	if !v.Failed {
		v.Failed, v.Reason, v.Message = true, reason, message
		return
	}
	v.Message += "; " + message
}

// messageLimit is the longest message that conditions may carry (32,768 in the
// schema of metav1.Condition), with room for those who add to it.
const messageLimit = 16 << 10

// Limit cuts a message that is too long to be written, and makes it UTF-8.
func Limit(message string) string {
	if len(message) > messageLimit {
		message = message[:messageLimit] + " ..."
	}
	return strings.ToValidUTF8(message, "\uFFFD")
}
