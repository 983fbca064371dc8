package explain

import (
	"strings"

	"fairlead.dev/internal/model"
)

// RouteOf is where a route was written, by its name alone: what an Explanation says of the route. Its object is empty for a name
// of another form.
func RouteOf(name string) Source {
	parts := strings.SplitN(name, "/", 4)
	if len(parts) < 4 {
		return Source{}
	}
	return routeSource(model.Route{Name: name, Owner: model.Object{Kind: parts[0], Namespace: parts[1], Name: parts[2]}})
}
