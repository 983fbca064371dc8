package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/delta"
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
	// errMoved says that the history, or what a vault has of it, is another than was read
	// or written last: begin again from what is there.
	errMoved = errors.New("the history has moved on")
)

// vault is where a history outlives its plane: records, of which the first is a whole
// state and the others are steps from it on. What is there after a crash is a beginning
// of what was written last, or all of what was there before.
type vault interface {
	// load returns the records that can be read. With record.ErrDamaged there were more.
	load(ctx context.Context) ([][]byte, error)
	// append puts records behind the others. With errMoved others have touched them.
	append(ctx context.Context, records [][]byte) error
	// replace puts records into the place of all; epoch is that of the plane. With
	// errFenced there are some of a later one, and they stay.
	replace(ctx context.Context, epoch uint64, records [][]byte) error
	// bounds are how many bytes may be kept, and how often something may be written.
	bounds() (most int, every time.Duration)
}

// tidier is a vault in which leaderships that ended while they wrote leave something that
// nobody reads.
type tidier interface {
	// tidy removes it. What a leadership writes that may be alive stays.
	tidy(ctx context.Context) error
}

// kept is a history as the keeper holds it: a state, and the steps from it on.
type kept struct {
	base    []byte // its record
	at      time.Time
	letGo   int
	steps   []*change // packed
	nth     uint64    // how many steps ever came before the first of these
	upTo    uint64    // sequence of the last own step that base has in it
	size    int       // of all records, bytes
	rewrite bool      // what is in the vault does not begin with it
}

func (k *kept) add(c *change) {
	k.steps = append(k.steps, c)
	k.size += len(c.packed)
}

// keeper packs the steps of a history, and keeps them in a vault while its plane leads.
// Nothing waits for the vault.
type keeper struct {
	vault    vault // nil: there is none
	patience time.Duration
	tidies   time.Duration // how often
	log      *slog.Logger
	// adopt hands the loop steps from before its own; it returns errMoved to be asked
	// again.
	adopt func(context.Context, adoption) error

	items chan keeperItem
	ended chan struct{}
	wake  chan struct{}

	mu      sync.Mutex
	kept    kept
	based   bool    // kept has a state
	first   *change // names the state that the plane began with
	bytes   int     // packed ever
	broken  error   // a bug; nothing is kept any more
	leads   uint64  // the epoch in which the plane leads; 0: it does not
	trouble error   // of the vault

	// steady is held while kept is worked on outside of mu: steps come only behind the
	// others then. Who has it waits for the loop, so packing never waits for it.
	steady sync.Mutex

	// Of the writer alone.
	joined  uint64 // the epoch for which what was there before was read
	written uint64 // steps ever that are in the vault
}

type keeperItem struct {
	step  *change
	base  *picture
	began time.Time
	rev   delta.Revision
	leads *uint64
}

// adoption is what a vault had from before this plane.
type adoption struct {
	steps []*change
	began time.Time
	letGo int
	lacks string
	// replaces is the sequence of the last of the plane's own steps that these stand for.
	replaces uint64
}

func newKeeper(v vault, log *slog.Logger, adopt func(context.Context, adoption) error) *keeper {
	return &keeper{
		vault: v, patience: keepTimeout, tidies: keepTidy, log: log, adopt: adopt, items: make(chan keeperItem, keeperQueue), ended: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

func (k *keeper) put(i keeperItem) {
	if k == nil {
		return
	}
	select {
	case k.items <- i:
	case <-k.ended:
	}
}

// begin takes the state that the plane begins with, before any step.
func (k *keeper) begin(at time.Time, rev delta.Revision, p picture) {
	k.put(keeperItem{base: &p, began: at, rev: rev})
}

// add takes a step. It is the keeper's to change from then on.
func (k *keeper) add(c *change) { k.put(keeperItem{step: c}) }

// lead says in which epoch the plane leads; in 0 it does not.
func (k *keeper) lead(epoch uint64) { k.put(keeperItem{leads: &epoch}) }

// look returns a step packed, or else what it replaced.
func (k *keeper) look(c *change) ([]byte, picture) {
	if k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
	}
	return c.packed, c.before
}

// has says whether the vault has a step.
func (k *keeper) has(c *change) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.stored
}

// total is how much was packed ever, bytes.
func (k *keeper) total() int {
	if k == nil {
		return 0
	}
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
			if err := k.take(&p, i); err != nil {
				k.log.Error("a bug: the history is not kept any more", "error", err)
				k.mu.Lock()
				k.broken = err
				k.mu.Unlock()
			}
		}
		signal(k.wake)
	}
}

func (k *keeper) take(p *past.Packer, i keeperItem) error {
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
		state, err := i.base.pack()
		if err != nil {
			return err
		}
		return k.base(p, i.began, i.rev, state)
	}
	edits, err := i.step.edits()
	if err != nil {
		return err
	}
	note, err := i.step.note()
	if err != nil {
		return err
	}
	packed, err := p.Step(i.step.at, note, edits)
	if err != nil {
		return err
	}
	k.mu.Lock()
	i.step.packed, i.step.before, i.step.after = packed, picture{}, picture{}
	k.bytes += len(packed)
	if k.vault == nil {
		k.mu.Unlock()
		return nil
	}
	k.kept.add(i.step)
	steps, size := len(k.kept.steps), k.kept.size
	k.mu.Unlock()
	// The writer folds before it writes. While it waits for a vault, this bounds memory.
	most, _ := k.vault.bounds()
	if (steps > historyLimit*9/8 || size > most/8*9) && k.steady.TryLock() {
		defer k.steady.Unlock()
		return k.fold()
	}
	return nil
}

func (k *keeper) base(p *past.Packer, at time.Time, rev delta.Revision, state past.State) error {
	note, err := json.Marshal(packedBase{})
	if err != nil {
		return err
	}
	base, err := p.Base(at, note, state)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.based = kept{base: base, at: at, size: len(base), rewrite: true}, true
	k.first = &change{at: at, revision: rev}
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
		case err != nil && !errors.Is(err, errMoved):
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

// note says once what is wrong with the vault, and that it is mended.
func (k *keeper) note(err error) {
	if errors.Is(err, errMoved) {
		return
	}
	k.mu.Lock()
	was := k.trouble
	k.trouble = err
	k.mu.Unlock()
	switch {
	case err != nil && was == nil:
		k.log.Error("revisions are not kept; `fairlead rollback` works, but not past a restart of this plane", "error", err)
	case err == nil && was != nil:
		k.log.Info("revisions are kept again")
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
	now := k.kept
	now.steps = slices.Clone(now.steps)
	k.mu.Unlock()
	most, _ := k.vault.bounds()
	if now.size > most {
		return false, fmt.Errorf("routing alone takes %d bytes, packed, and %d may be kept: %w", now.size, most, errTooLarge)
	}
	all := now.nth + uint64(len(now.steps))
	switch {
	case now.rewrite || k.written < now.nth:
		records := [][]byte{now.base}
		for _, c := range now.steps {
			records = append(records, c.packed)
		}
		err = k.within(ctx, func(ctx context.Context) error { return k.vault.replace(ctx, epoch, records) })
		if err == nil {
			k.mu.Lock()
			k.kept.rewrite = k.kept.nth != now.nth // folded meanwhile
			k.mu.Unlock()
		}
	case k.written < all:
		var records [][]byte
		for _, c := range now.steps[k.written-now.nth:] {
			records = append(records, c.packed)
		}
		if err = k.within(ctx, func(ctx context.Context) error { return k.vault.append(ctx, records) }); err != nil {
			k.mu.Lock()
			k.kept.rewrite = true
			k.mu.Unlock()
		}
	}
	if err != nil {
		return false, err
	}
	wrote = now.rewrite || k.written != all
	k.written = all
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range now.steps {
		c.stored = true
	}
	return wrote, nil
}

// within calls the vault. One that does not return in time is trouble before it returns:
// a disk that hangs heeds no context.
func (k *keeper) within(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, k.patience, fmt.Errorf("what keeps them does not answer within %s", k.patience))
	defer cancel()
	noted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(noted)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			k.note(context.Cause(ctx))
		}
	})
	err := call(ctx)
	if !stop() {
		<-noted
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
	return err
}

// fold takes the oldest steps into the state when there is more than may be kept. Its
// caller has steady.
func (k *keeper) fold() error {
	most, _ := k.vault.bounds()
	k.mu.Lock()
	now := k.kept
	now.steps = slices.Clone(now.steps)
	k.mu.Unlock()
	if len(now.steps) <= historyLimit && now.size <= most || len(now.steps) == 0 {
		return nil
	}
	at, _, state, err := past.UnpackBase(now.base)
	if err != nil {
		return err
	}
	n, size := 0, now.size
	for ; n < len(now.steps) && (len(now.steps)-n > historyLimit*7/8 || size > most*7/8); n++ {
		c := now.steps[n]
		if err := forward(state, c); err != nil {
			return err
		}
		at, size = c.at, size-len(c.packed)
		now.upTo = max(now.upTo, c.sequence)
		if c.count > 0 {
			now.letGo++
		}
	}
	note, err := json.Marshal(packedBase{LetGo: now.letGo})
	if err != nil {
		return err
	}
	base, err := new(past.Packer).Base(at, note, state)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept.size = size - len(now.base) + len(base)
	for _, c := range k.kept.steps[len(now.steps):] {
		k.kept.size += len(c.packed)
	}
	k.kept.base, k.kept.at, k.kept.letGo, k.kept.upTo = base, at, now.letGo, now.upTo
	k.kept.steps = slices.Clone(k.kept.steps[n:])
	k.kept.nth += uint64(n)
	k.kept.rewrite = true
	return nil
}
