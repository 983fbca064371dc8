package plane

import (
	"context"
	"errors"
	"time"

	"fairlead.dev/internal/southbound"
)

const (
	// tellWait bounds one try to tell the plane before, tellPause and tellPauseMost the time between two,
	// which doubles.
	tellWait      = 5 * time.Second
	tellPause     = time.Second
	tellPauseMost = 30 * time.Second
	// tellTries are made until it is left alone: mostly it is dead. They take a quarter of an hour.
	tellTries = 30
)

// succeed tells the planes whose Lease this one has taken, one at a time, that it leads: one that is cut off from
// the API cannot know, and its agents would not learn what comes.
func (p *Plane) succeed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case address := <-p.before:
			p.tell(ctx, address)
		}
	}
}

// predecessor has the address of the plane whose Lease this one took, until that plane is told.
type predecessor chan string

func newPredecessor() predecessor { return make(predecessor, 1) }

// note notes the plane to tell, the last one if there are several.
func (p predecessor) note(address string) {
	select {
	case <-p:
	default:
	}
	select {
	case p <- address:
	default: // another one was noted just now
	}
}

// tell tells the plane at an address that this one leads, while it does, until it knows.
func (p *Plane) tell(ctx context.Context, address string) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for n := range tellTries {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		t := p.lease.current()
		if !t.Held {
			return
		}
		err := errNotServing
		if t.Epoch == p.serving.Load() { // its agents come at once
			err = p.tellOnce(ctx, address, t)
		}
		if err == nil {
			p.config.Log.Info("the plane that led before knows that this one does", "address", address)
			return
		}
		p.config.Log.Debug("the plane that led before may not know that this one does", "address", address, "error", err)
		pause.Reset(min(tellPause<<min(n, 5), tellPauseMost))
	}
}

var errNotServing = errors.New("no agents are served yet")

func (p *Plane) tellOnce(ctx context.Context, address string, t term) error {
	ctx, cancel := context.WithTimeout(ctx, tellWait)
	defer cancel()
	return southbound.Succeed(ctx, address, p.trust.authorities, p.config.Now, southbound.Successor{
		Epoch: t.Epoch, Address: t.Leader, Identity: t.Identity, Console: t.Console,
	})
}
