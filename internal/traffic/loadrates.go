package traffic

import (
	"net/netip"

	"fairlead.dev/internal/model"
)

// loads adds the requests of the backends of measured groups. A class is known of answers that are no errors only as "not 5xx": those
// are 2xx here.
func (c *comparison) loads(was, now []model.GroupLoad) {
	type backend struct {
		group   model.GroupID
		address netip.AddrPort
	}
	old := map[backend]model.BackendLoad{}
	for _, g := range was {
		for _, b := range g.Backends {
			old[backend{g.Group, b.Address}] = b
		}
	}
	for _, g := range now {
		if c.query.Namespace != "" && g.Group.Namespace() != c.query.Namespace {
			continue
		}
		for _, b := range g.Backends {
			r := c.row(b.Address.String() + " of " + string(g.Group))
			r.Requests += b.Requests
			r.InFlight += b.InFlight
			if c.seconds <= 0 {
				continue
			}
			more := b.Less(old[backend{g.Group, b.Address}])
			r.Rate += float64(more.Requests) / c.seconds
			r.Rates[2] += float64(more.Succeeded) / c.seconds
			r.Rates[5] += float64(more.Failed) / c.seconds
			if c.waits == nil {
				c.waits = map[string]wait{}
			}
			w := c.waits[r.Name]
			w.timed, w.micros = w.timed+more.Timed, w.micros+more.Micros
			if c.waits[r.Name] = w; w.timed > 0 {
				r.FirstByte = float64(w.micros) / float64(w.timed) / 1e6
			}
		}
	}
}

// wait is how long answers of a backend took to begin.
type wait struct{ timed, micros uint64 }
