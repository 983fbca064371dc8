package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/history"
	"fairlead.dev/internal/past"
)

const (
	// keeperQueue is how many steps the loop may be ahead of the keeper, which packs as
	// fast as it can and waits for nobody: it bounds what is not packed yet.
	keeperQueue = 64
	// keepAgain and keepAgainMost are how long the keeper waits after a failure.
	keepAgain, keepAgainMost = time.Second, time.Minute
	// keepLast is how long the last write may take when a plane ends.
	keepLast = 2 * time.Second
	// keepTimeout is how long a vault may take, until it is given up where it lets itself
	// be, and is in the status in any case.
	keepTimeout = 30 * time.Second
	// keepTidy is how often what other leaderships left is looked for.
	keepTidy = 10 * time.Minute
)

var (
	// errFenced says that a plane of a later epoch has written meanwhile: it leads.
	errFenced = errors.New("another plane has written meanwhile")
	// errTooLarge says that the state alone takes more than may be kept.
	errTooLarge = errors.New("too large")
)

// keeper packs the steps of a history, and keeps them in a vault while its plane leads.
// Nothing waits for the vault.
type keeper struct {
	vault    vault // nil: there is none
	patience time.Duration
	tidies   time.Duration // how often
	log      *slog.Logger
	// adopt hands the loop steps from before its own; it returns history.ErrMoved to be asked
	// again.
	adopt func(context.Context, history.Adoption) error

	items chan keeperItem
	ended chan struct{}
	wake  chan struct{}

	mu      sync.Mutex
	kept    history.Log
	based   bool   // kept has a state
	bytes   int    // packed ever
	broken  error  // a bug; nothing is kept any more
	leads   uint64 // the epoch in which the plane leads; 0: it does not
	trouble error  // of the vault

	// steady is held while kept is worked on outside of mu: steps come only behind the
	// others then. Who has it waits for the loop, so packing never waits for it.
	steady sync.Mutex

	// Of the writer alone.
	joined  uint64 // the epoch for which what was there before was read
	written uint64 // steps ever that are in the vault
}

type keeperItem struct {
	step  *history.Step
	base  *history.State
	began time.Time
	rev   delta.Revision
	leads *uint64
}

func newKeeper(v vault, log *slog.Logger, adopt func(context.Context, history.Adoption) error) *keeper {
	return &keeper{
		vault: v, patience: keepTimeout, tidies: keepTidy, log: log, adopt: adopt, items: make(chan keeperItem, keeperQueue), ended: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

func (k *keeper) put(i keeperItem) {
	select {
	case k.items <- i:
	case <-k.ended:
	}
}

// Begin takes the state that the plane begins with, before any step.
func (k *keeper) Begin(at time.Time, rev delta.Revision, p history.State) {
	k.put(keeperItem{base: &p, began: at, rev: rev})
}

// Add takes a step. It is the keeper's to change from then on.
func (k *keeper) Add(c *history.Step) { k.put(keeperItem{step: c}) }

// lead says in which epoch the plane leads; in 0 it does not.
func (k *keeper) lead(epoch uint64) { k.put(keeperItem{leads: &epoch}) }

// Look returns a step packed, or else what it replaced.
func (k *keeper) Look(c *history.Step) ([]byte, history.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.Content()
}

// has says whether the vault has a step.
func (k *keeper) has(c *history.Step) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.IsKept()
}

// Total is how much was packed ever, bytes.
func (k *keeper) Total() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes
}

// healthy is why the history would not outlive the plane; nil when it would, or is not to.
func (k *keeper) healthy() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.broken, k.trouble)
}

// run packs until ctx is done.
func (k *keeper) run(ctx context.Context) {
	defer close(k.ended)
	var p past.Packer
	for {
		select {
		case <-ctx.Done():
			return
		case i := <-k.items:
			if err := k.receive(&p, i); err != nil {
				k.log.Error("a bug: the history is not kept any more", "error", err)
				k.mu.Lock()
				k.broken = err
				k.mu.Unlock()
			}
		}
		signal(k.wake)
	}
}

func (k *keeper) receive(p *past.Packer, i keeperItem) error {
	switch {
	case i.leads != nil:
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.leads = *i.leads; k.leads == 0 {
			k.trouble = nil // the leader's affair
		}
		return nil
	case k.broken != nil: // only this goroutine sets it
		return nil
	case i.base != nil && k.vault == nil:
		return nil
	case i.base != nil:
		base, err := history.NewLog(p, i.began, i.rev, *i.base)
		if err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.kept, k.based = base, true
		return nil
	}
	packed, err := i.step.Pack(p)
	if err != nil {
		return err
	}
	k.mu.Lock()
	i.step.SetPacked(packed)
	k.bytes += len(packed)
	if k.vault == nil {
		k.mu.Unlock()
		return nil
	}
	k.kept.Add(i.step)
	most, _ := k.vault.bounds()
	exceeds := k.kept.Exceeds(most)
	k.mu.Unlock()
	// The writer folds before it writes. While it waits for a vault, this bounds memory.
	if exceeds && k.steady.TryLock() {
		defer k.steady.Unlock()
		return k.fold()
	}
	return nil
}

// write keeps what is packed in the vault, until ctx is done and once more then.
func (k *keeper) write(ctx context.Context) {
	if k.vault == nil {
		return
	}
	_, every := k.vault.bounds()
	again := keepAgain
	timer := time.NewTimer(0)
	defer timer.Stop()
	tidy := time.NewTicker(k.tidies)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepLast)
			defer cancel()
			_, err := k.flush(last)
			k.note(err)
			return
		case <-tidy.C:
			k.tidy(ctx)
			continue
		case <-k.wake:
		}
		select { // let a burst gather, and the vault rest
		case <-ctx.Done():
			continue
		case <-timer.C:
		}
		wrote, err := k.flush(ctx)
		if ctx.Err() != nil {
			continue
		}
		k.note(err)
		pause := time.Duration(0)
		switch {
		case wrote:
			pause, again = every, keepAgain
		case err != nil && !errors.Is(err, history.ErrMoved):
			pause, again = again, min(2*again, keepAgainMost)
		}
		timer.Reset(pause)
		if err != nil {
			signal(k.wake)
		}
	}
}

// tidy has the leader's vault remove what others left. What fails is tried again the next
// time: what is there harms nobody.
func (k *keeper) tidy(ctx context.Context) {
	v, is := k.vault.(tidier)
	k.mu.Lock()
	leads := k.leads != 0 && k.leads == k.joined
	k.mu.Unlock()
	if !is || !leads {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	if err := v.tidy(ctx); err != nil {
		k.log.Debug("what earlier leaderships left of their revisions is still there", "error", err)
	}
}

// flush brings the vault up to what is packed, when the plane leads, and says whether
// there was anything to write.
func (k *keeper) flush(ctx context.Context) (wrote bool, err error) {
	k.steady.Lock()
	err = k.fold()
	k.steady.Unlock()
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	epoch, ready := k.leads, k.based && k.broken == nil
	k.mu.Unlock()
	if epoch == 0 {
		k.joined = 0
	}
	if epoch == 0 || !ready {
		return false, nil
	}
	if k.joined != epoch {
		if err := k.join(ctx, epoch); err != nil {
			return false, err
		}
		k.joined = epoch
	}
	k.mu.Lock()
	now := k.kept.Clone()
	k.mu.Unlock()
	most, _ := k.vault.bounds()
	if now.Size > most {
		return false, fmt.Errorf("routing alone takes %d bytes, packed, and %d may be kept: %w", now.Size, most, errTooLarge)
	}
	all := now.Count()
	switch {
	case now.Rewrite || k.written < now.Folded:
		err = k.within(ctx, func(ctx context.Context) error { return k.vault.replace(ctx, epoch, now.Records()) })
		if err == nil {
			k.mu.Lock()
			k.kept.Rewrite = k.kept.Folded != now.Folded // folded meanwhile
			k.mu.Unlock()
		}
	case k.written < all:
		records := now.Since(k.written)
		if err = k.within(ctx, func(ctx context.Context) error { return k.vault.append(ctx, records) }); err != nil {
			k.mu.Lock()
			k.kept.Rewrite = true
			k.mu.Unlock()
		}
	}
	if err != nil {
		return false, err
	}
	wrote = now.Rewrite || k.written != all
	k.written = all
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range now.Steps {
		c.Keep()
	}
	return wrote, nil
}

// fold merges the oldest steps into the state when there is more than may be kept. Its
// caller has steady.
func (k *keeper) fold() error {
	most, _ := k.vault.bounds()
	k.mu.Lock()
	now := k.kept.Clone()
	k.mu.Unlock()
	folded, n, err := now.Fold(most)
	if err != nil || n == 0 {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.kept.Steps[len(now.Steps):] { // came meanwhile
		folded.Add(c)
	}
	k.kept = folded
	return nil
}
