package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/delta"
)

const (
	// rememberEvery bounds how often the disk is written to.
	rememberEvery = 200 * time.Millisecond
	// rememberAgain is how long a write that went wrong waits for the next try.
	rememberAgain = 5 * time.Second
)

// keeper writes what must be remembered, behind the agent's back: nothing waits for
// it. Secrets go to a file of their own, which is not on the disk.
type keeper struct {
	log    *slog.Logger
	state  *memory
	secret *memory
	wrote  func(bytes int64)
	lag    lag
	whole  bool // the plane has sent a whole state, so a write that works leaves none behind

	mu      sync.Mutex
	queue   []memoryBatch
	more    chan struct{}
	trouble error // of the last write
}

func newKeeper(log *slog.Logger, state, secret *memory, wrote func(int64)) *keeper {
	return &keeper{log: log, state: state, secret: secret, wrote: wrote, more: make(chan struct{}, 1)}
}

// add queues a batch. It never blocks.
func (k *keeper) add(b memoryBatch) {
	k.mu.Lock()
	k.queue = append(k.queue, b)
	k.mu.Unlock()
	poke(k.more)
}

// run writes until ctx is done, and then once more.
func (k *keeper) run(ctx context.Context) {
	defer k.state.close()
	defer k.secret.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			k.flush()
			return
		case <-k.more:
		}
		select { // let a burst gather, and the disk rest
		case <-ctx.Done():
			continue
		case <-timer.C:
		}
		if k.flush() {
			timer.Reset(rememberEvery)
		} else {
			timer.Reset(rememberAgain)
			poke(k.more)
		}
	}
}

// flush writes what is queued and says whether that worked. What could not be
// written is part of the next write.
func (k *keeper) flush() bool {
	k.mu.Lock()
	queue := k.queue
	k.queue = nil
	k.mu.Unlock()
	var plain, secret []memoryBatch
	for _, b := range queue {
		k.whole = k.whole || slices.ContainsFunc(b.target, isCheckpoint)
		p, s := split(b)
		plain = append(plain, p)
		if s != nil {
			secret = append(secret, *s)
		}
	}
	err := k.state.write(plain)
	if e := k.secret.write(secret); err == nil {
		err = e
	}
	if k.whole {
		if e := k.secret.ensure(); err == nil {
			err = e
		}
	}
	k.wrote(k.state.file.Size())
	if err != nil || k.whole {
		if e := k.lag.mark(err != nil); e != nil {
			k.log.Warn("an agent that is started now takes what is remembered for the newest", "error", e)
		}
	}
	k.mu.Lock()
	was := k.trouble
	k.trouble = err
	k.mu.Unlock()
	switch {
	case err != nil && was == nil:
		k.log.Error("state is not remembered; traffic goes on, also when this agent is restarted, but a new proxy would start from an older state",
			"error", err, "again_in", rememberAgain)
	case err == nil && was != nil:
		k.log.Info("state is remembered again")
	}
	return err == nil
}

// healthy is what went wrong with the last write, or nil.
func (k *keeper) healthy() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble
}

// split takes the secrets out of a batch.
func split(b memoryBatch) (memoryBatch, *memoryBatch) {
	plain := memoryBatch{revision: b.revision}
	secret := memoryBatch{revision: b.revision}
	share := func(from []delta.Change, p, s *[]delta.Change) {
		for _, c := range from {
			private, public := isPrivate(c)
			if private {
				*s = append(*s, c)
			}
			if public {
				*p = append(*p, c)
			}
		}
	}
	share(b.target, &plain.target, &secret.target)
	share(b.good, &plain.good, &secret.good)
	if len(secret.target)+len(secret.good) == 0 {
		return plain, nil
	}
	return plain, &secret
}
