package plane

import (
	"context"
	"errors"
	"fmt"

	"fairlead.dev/internal/history"
	"fairlead.dev/internal/record"
)

// read reads a history from the vault; it is nil when there is none that can be used.
func (k *keeper) read(ctx context.Context) (*history.Stored, string, error) {
	var records [][]byte
	err := k.within(ctx, func(ctx context.Context) (err error) {
		records, err = k.vault.load(ctx)
		return err
	})
	damaged := ""
	if err != nil {
		if !errors.Is(err, record.ErrDamaged) {
			return nil, "", fmt.Errorf("read the revisions of planes before this one: %w", err)
		}
		damaged = err.Error()
	}
	if len(records) == 0 {
		if damaged != "" {
			k.log.Warn("the revisions of planes before this one are lost", "error", damaged)
			damaged = "those of planes before this one are lost: " + damaged
		}
		return nil, damaged, nil
	}
	f, err := history.ReadLog(records)
	if err != nil {
		k.log.Warn("the revisions of planes before this one cannot be used", "error", err)
		return nil, "those of planes before this one cannot be used: " + err.Error(), nil
	}
	if damaged != "" {
		k.log.Warn("the revisions of planes before this one are there in part", "error", damaged, "until", f.Last())
	}
	return f, "", nil
}

// join puts the history in the vault before the plane's own, where it reaches further back.
func (k *keeper) join(ctx context.Context, epoch uint64) error {
	f, lacks, err := k.read(ctx)
	if err != nil {
		return err
	}
	k.steady.Lock()
	defer k.steady.Unlock()
	k.mu.Lock()
	own := k.kept.Clone()
	k.mu.Unlock()
	if f == nil || !f.At.Before(own.At) {
		k.mu.Lock()
		k.kept.Rewrite = true
		k.mu.Unlock()
		if lacks == "" {
			return nil
		}
		return k.adopt(ctx, history.Adoption{Began: own.At, Lacks: lacks})
	}
	a, n, err := f.Before(own, epoch)
	if err != nil {
		return err
	}
	if err := k.adopt(ctx, a); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = f.Joined(a, k.kept, n)
	return nil
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

// note says once what is wrong with the vault, and that it is mended.
func (k *keeper) note(err error) {
	if errors.Is(err, history.ErrMoved) {
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
