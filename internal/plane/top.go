package plane

import (
	"context"
	"sync"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/traffic"
)

const (
	// topGap is the least time between two samples: all viewers share them.
	topGap = time.Second
	// topAge is how old a sample may be to be compared with.
	topAge = 10 * time.Second
)

// top keeps the last two samples of what proxies have counted. Proxies are asked only while somebody looks.
type top struct {
	now    func() time.Time
	sample func(context.Context) map[string]southbound.Figures

	mu           sync.Mutex // held while machines are asked: who comes meanwhile has the same samples
	before, last traffic.Sample
	figures      map[string]southbound.Figures // of which last is a part
}

// Top says what proxies answer, by the two last samples. If there was none within the last seconds, it takes about a second.
func (p *Plane) Top(ctx context.Context, q traffic.Question) (model.Top, error) {
	if p.serving.Load() == 0 {
		return model.Top{}, errNoAnswer
	}
	return p.top.ask(ctx, q)
}

func (t *top) ask(ctx context.Context, q traffic.Question) (model.Top, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if age := t.now().Sub(t.last.At); age >= topGap {
		t.take(ctx)
	}
	if t.last.At.Sub(t.before.At) > topAge {
		select {
		case <-time.After(topGap):
		case <-ctx.Done():
			return model.Top{}, ctx.Err()
		}
		t.take(ctx)
	}
	return traffic.Rates(t.before, t.last, q), nil
}

// take takes a sample.
func (t *top) take(ctx context.Context) {
	next := traffic.Sample{At: t.now(), Requests: map[string][]model.RequestFigures{}}
	t.figures = t.sample(ctx)
	for machine, f := range t.figures {
		next.Requests[machine] = f.Requests
	}
	t.before, t.last = t.last, next
}
