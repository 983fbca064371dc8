package v1_test

import (
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/console/v1/v1test"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

// What planes answer with is what is declared.
func TestAnswersAreDeclared(t *testing.T) {
	t.Run("status", v1test.Same[model.Status, v1.Status])
	t.Run("routes", v1test.Same[[]model.RouteRow, []v1.Route])
	t.Run("backends", v1test.Same[[]model.BackendStatus, []v1.BackendStatus])
	t.Run("flows", v1test.Same[model.FlowList, v1.FlowList])
	t.Run("revisions", v1test.Same[[]model.Revision, []v1.Revision])
	t.Run("changes", v1test.Same[[]model.Change, []v1.Change])
	t.Run("upstreams", v1test.Same[[]model.UpstreamStatus, []v1.Upstream])
	t.Run("top", v1test.Same[model.Top, v1.Top])
	t.Run("tap", v1test.Same[model.TapEvent, v1.TapEvent])
	t.Run("explain", v1test.Same[explain.Explanation, v1.Explanation])
	t.Run("explain flow", v1test.Same[explain.FlowExplanation, v1.FlowExplanation])
}
