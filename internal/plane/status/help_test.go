package status

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// soon tries until it works.
func soon(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("waiting until %s: %v", what, err)
		case <-tick.C:
		}
	}
}

func hasCondition(conditions []metav1.Condition, conditionType string, want metav1.ConditionStatus, reason string) error {
	for _, c := range conditions {
		if c.Type == conditionType {
			if c.Status != want || reason != "" && c.Reason != reason {
				return fmt.Errorf("condition %s is %s, %s: %s", conditionType, c.Status, c.Reason, c.Message)
			}
			return nil
		}
	}
	return fmt.Errorf("there is no condition %s in %v", conditionType, conditions)
}
