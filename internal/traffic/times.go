package traffic

import (
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

const (
	// timesPart is one of the timesParts that sampled requests are kept for.
	timesPart  = 5 * time.Second
	timesParts = 3
	// mostTimed bounds the routes and hosts of each part.
	mostTimed = 4_000
)

// Times are the durations of the sampled requests of the last 15 s, by route and by host. Its zero value is empty.
type Times struct{ parts [timesParts]timesOf }

type timesOf struct {
	began time.Time
	names map[timed]*model.Histogram
}

type timed struct {
	by   By
	name string
}

// Add adds a request.
func (t *Times) Add(at time.Time, r *model.TapRecord) {
	began := at.Truncate(timesPart)
	p := &t.parts[int(began.Unix()/int64(timesPart/time.Second))%timesParts]
	if !p.began.Equal(began) {
		*p = timesOf{began, map[timed]*model.Histogram{}}
	}
	// Of hosts with a pattern nothing is known: a record has the name that the client asked for.
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	figures := model.RequestFigures{Route: r.Route, Host: strings.TrimSuffix(host, ".")}
	for _, by := range []By{Routes, Hosts} {
		k := timed{by, by.name(&figures)}
		h := p.names[k]
		if h == nil {
			if len(p.names) >= mostTimed {
				continue
			}
			h = &model.Histogram{}
			p.names[k] = h
		}
		h.Add(r.Seconds, 1)
	}
}

// of are the times of a name at a time; nil: none is known.
func (t *Times) of(by By, name string, now time.Time) *model.Histogram {
	if t == nil {
		return nil
	}
	var sum *model.Histogram
	for _, p := range t.parts {
		h := p.names[timed{by, name}]
		if h == nil || now.Sub(p.began) >= timesParts*timesPart {
			continue
		}
		if sum == nil {
			sum = &model.Histogram{}
		}
		sum.Merge(*h)
	}
	return sum
}
