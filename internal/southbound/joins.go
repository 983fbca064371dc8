package southbound

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How many joins may be refused, of one network of clients and in all: a token that somebody made up costs a
// question to the API. Joins that succeed count only while they are under way.
const (
	badJoinsRate   = 1 // a second, of one network
	badJoinsBurst  = 64
	allBadJoins    = 10 // a second
	allBadBurst    = 256
	joinTurn       = 5 * time.Second // how long a join waits whose network had none refused
	joinTurnEvery  = 50 * time.Millisecond
	joinsKeptApart = 1024 // networks, before those with nothing against them are forgotten
)

var errManyBadJoins = errors.New("too many joins were refused just now; try again later")

// joins hold up the networks whose joins are refused, and not the others.
type joins struct {
	now func() time.Time

	mu       sync.Mutex
	all      joiners
	networks map[netip.Prefix]*joiners
}

type joiners struct {
	refusals *rate.Limiter
	asking   int // joins under way
}

func newJoins(now func() time.Time) *joins {
	return &joins{now: now, all: joiners{refusals: rate.NewLimiter(allBadJoins, allBadBurst)}, networks: map[netip.Prefix]*joiners{}}
}

// full says whether one more join may not be refused.
func (j *joiners) full(now time.Time) bool { return j.refusals.TokensAt(now)-float64(j.asking) < 1 }

// clean says that none was refused lately.
func (j *joiners) clean(now time.Time) bool { return j.refusals.TokensAt(now) >= badJoinsBurst }

// begin lets a join ask, and is told by done whether it was refused.
func (j *joins) begin(ctx context.Context, network netip.Prefix) (done func(refused bool), _ error) {
	ctx, cancel := context.WithTimeoutCause(ctx, joinTurn, errManyBadJoins)
	defer cancel()
	ticker := time.NewTicker(joinTurnEvery)
	defer ticker.Stop()
	for {
		done, wait, err := j.try(network)
		if !wait {
			return done, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// try is begin without waiting.
func (j *joins) try(network netip.Prefix) (done func(refused bool), wait bool, _ error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	of := j.networks[network]
	if of == nil {
		of = &joiners{refusals: rate.NewLimiter(badJoinsRate, badJoinsBurst)}
	}
	switch {
	case of.full(now):
		return nil, false, errManyBadJoins
	case j.all.full(now) && of.clean(now):
		return nil, true, nil
	case j.all.full(now):
		return nil, false, errManyBadJoins
	}
	if len(j.networks) >= joinsKeptApart {
		maps.DeleteFunc(j.networks, func(_ netip.Prefix, o *joiners) bool { return o.asking == 0 && o.clean(now) })
	}
	j.networks[network] = of
	of.asking++
	j.all.asking++
	return func(refused bool) { j.end(network, of, refused) }, false, nil
}

func (j *joins) end(network netip.Prefix, of *joiners, refused bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	of.asking--
	j.all.asking--
	if refused {
		of.refusals.ReserveN(now, 1)
		j.all.refusals.ReserveN(now, 1)
	}
	if of.asking == 0 && of.clean(now) {
		delete(j.networks, network)
	}
}
