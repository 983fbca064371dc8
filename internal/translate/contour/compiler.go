package contour

import (
	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
)

// compiler compiles one IngressRoute and collects its problems.
type compiler struct {
	t        *Tables
	ctx      *memo.Context
	name     snapshot.Name
	route    *IngressRoute
	measured bool            // it has metrics of its own
	matched  map[string]int  // index in spec.routes of each prefix
	noted    map[string]bool // Services of whose endpoints a note says what is wrong
}

func (c *compiler) fail(path, problem string) {
	c.route.Problems = append(c.route.Problems, path+": "+problem)
}

// close notes a fault for which a root serves nothing. In a child it is a problem like others.
func (c *compiler) close(problem string) {
	if c.route.Root {
		c.route.Closed = append(c.route.Closed, problem)
	} else {
		c.route.Problems = append(c.route.Problems, problem)
	}
}

// delegate is the IngressRoute that a route or tcpproxy delegates to, nil when none is named.
func (c *compiler) delegate(d *contourv1beta1.Delegate, path string) *snapshot.Name {
	if d.Name == "" {
		c.fail(path+".name", "must be specified")
		return nil
	}
	target := snapshot.Name{Namespace: c.name.Namespace, Name: d.Name}
	if d.Namespace != "" {
		target.Namespace = d.Namespace
	}
	return &target
}
