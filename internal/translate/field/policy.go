package field

import (
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/translate/condition"
)

// PolicyResult is the outcome of reading a policy, with its first problem as the reason.
type PolicyResult = condition.Result[gatewayv1.PolicyConditionReason]

// OneOf takes a value of a list; one that is not is left out.
func OneOf[T ~string](c *Policy, path string, value T, list ...T) T {
	if value == "" || slices.Contains(list, value) {
		return value
	}
	var names []string
	for _, v := range list {
		names = append(names, string(v))
	}
	c.Fail(path, Quote(string(value))+" must be one of "+strings.Join(names, ", "))
	return ""
}

// Policy collects what is wrong with the fields of one policy.
type Policy struct{ Invalid PolicyResult }

// Fail notes a problem of a field.
func (c *Policy) Fail(path, problem string) {
	c.Invalid.Fail(gatewayv1.PolicyReasonInvalid, path+": "+problem)
}

// Duration reads one of the Gateway API; what is empty or wrong is the default.
func (c *Policy) Duration(text gatewayv1.Duration, least, most, otherwise time.Duration, path string) time.Duration {
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		c.Fail(path, Quote(string(text))+` is not a duration like "10s" or "500ms"`)
	case d < least || d > most:
		c.Fail(path, Quote(string(text))+" must be from "+least.String()+" to "+most.String())
	default:
		return d
	}
	return otherwise
}

// Number reads one in a range; what is wrong is left out.
func Number[T int32 | int64](c *Policy, n *T, least, most T, path string) T {
	if n == nil {
		return 0
	}
	if *n < least || *n > most {
		c.Fail(path, strconv.FormatInt(int64(*n), 10)+" must be in the range "+strconv.FormatInt(int64(least), 10)+"-"+strconv.FormatInt(int64(most), 10))
		return 0
	}
	return *n
}

// PolicyCondition returns the condition of a policy: the result's reason and message where it failed, else the given ones.
func PolicyCondition(kind gatewayv1.PolicyConditionType, v PolicyResult, reason gatewayv1.PolicyConditionReason, message string, generation int64) metav1.Condition {
	if v.Failed {
		reason, message = v.Reason, v.Message
	}
	return condition.New(kind, !v.Failed, reason, message, generation)
}
