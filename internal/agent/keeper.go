package agent

import (
	"context"
	"log/slog"
	"path/filepath"
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
	log       *slog.Logger
	unproxied bool // nothing that is for a proxy is remembered
	state     *memory
	secret    *memory
	wrote     func(bytes float64)
	lag       lag
	whole     bool // the plane has sent a whole state, so a write that works leaves none behind
	more      signal

	mu      sync.Mutex
	queue   []memoryBatch
	trouble error // of the last write
}

// newKeeper makes a keeper that remembers nothing before open.
func newKeeper(log *slog.Logger, unproxied bool, wrote func(float64)) *keeper {
	return &keeper{log: log, unproxied: unproxied, wrote: wrote, more: newSignal()}
}

// open reads what agents before remembered, and says whether it is older than what Envoy may run,
// and whether the private keys that belong to it are lost.
func (k *keeper) open(dataDir, runDir string) (state remembered, older, keyless bool) {
	k.lag = newLag(filepath.Join(runDir, "lag"))
	older = k.lag.set
	open := func(path string) (*memory, remembered) {
		m, r, err := openMemory(path)
		if err != nil {
			k.log.Error("the stored state is damaged: a running proxy keeps its configuration until a plane answers; a new proxy gets the older state that could be read",
				"error", err, "revision", r.revision.String())
			// The next write makes the file whole again, but not newer.
			if err := k.lag.mark(true); err != nil {
				k.log.Warn("cannot mark the stored state as outdated: the next agent will treat it as current", "error", err)
			}
			older = true
		}
		if k.unproxied {
			m.unproxy()
			r = m.remembered()
			k.more.raise()
		}
		return m, r
	}
	var secrets remembered
	k.state, state = open(filepath.Join(dataDir, stateFile))
	k.secret, secrets = open(filepath.Join(runDir, "secrets"))
	keyless = k.secret.file.Broken() && len(state.target) > 0 && !k.unproxied
	state.target = append(state.target, secrets.target...)
	state.good = append(state.good, secrets.good...)
	return state, older, keyless
}

// add queues a batch. It never blocks.
func (k *keeper) add(b memoryBatch) {
	if k.unproxied {
		b.target = withoutProxies(b.target)
	}
	k.mu.Lock()
	k.queue = append(k.queue, b)
	k.mu.Unlock()
	k.more.raise()
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
			k.more.raise()
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
	k.wrote(float64(k.state.file.Size()))
	if err != nil || k.whole {
		if e := k.lag.mark(err != nil); e != nil {
			k.log.Warn("cannot mark the stored state as outdated: the next agent will treat it as current", "error", e)
		}
	}
	k.mu.Lock()
	was := k.trouble
	k.trouble = err
	k.mu.Unlock()
	switch {
	case err != nil && was == nil:
		k.log.Error("cannot store the state; traffic continues, even if this agent restarts, but a new proxy would start from an older state",
			"error", err, "again_in", rememberAgain)
	case err == nil && was != nil:
		k.log.Info("the state is stored again")
	}
	return err == nil
}

// healthy is what went wrong with the last write, or nil.
func (k *keeper) healthy() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble
}

// split separates the secrets from the rest of a batch.
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
