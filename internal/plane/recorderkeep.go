package plane

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/changes"
	"fairlead.dev/internal/record"
)

const (
	changesHeader     = "fairlead changes 1\n"
	changesSecretType = corev1.SecretType("fairlead.dev/changes")
	// secretChangesBytes bounds changes that are kept in Secrets: each part is written whole.
	secretChangesBytes = 1 << 20
)

// newChangesVault is where changes outlive a plane: beside the revisions.
func newChangesVault(c Config, api client.Client, o owner) vault {
	if c.ChangesFile != "" {
		return &fileVault{path: c.ChangesFile, header: changesHeader, most: 2 * changes.MaxBytes, may: c.MayWrite}
	}
	v := newSecretVault(api, o)
	v.most = secretChangesBytes
	v.of = secretsOf{what: "changes", header: changesHeader, kind: changesSecretType, prefix: "changes-", label: "fairlead.dev/changes"}
	return v
}

// keep brings the vault up to the changes, when the plane leads.
func (r *recorder) keep(ctx context.Context) (wrote bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	r.mu.Lock()
	epoch := r.leads.Epoch
	r.mu.Unlock()
	if epoch == 0 {
		r.joined = 0
		return false, nil
	}
	if r.joined != epoch {
		if err := r.join(ctx); err != nil {
			return false, err
		}
		r.joined, r.anew = epoch, true
	}
	most, _ := r.vault.bounds()
	r.mu.Lock()
	var records [][]byte
	if !r.anew {
		records = r.kept.Unsaved()
	}
	if more := sizeOf(records); r.anew || r.size+more > most {
		r.anew, records = true, r.kept.Records()
	}
	r.mu.Unlock()
	switch size := sizeOf(records); {
	case r.anew:
		if err := r.vault.replace(ctx, epoch, records); err != nil {
			return false, err
		}
		r.size, r.anew = size, false
	case len(records) > 0:
		if err := r.vault.append(ctx, records); err != nil {
			r.anew = true // nobody knows what is there now
			return false, err
		}
		r.size += size
	default:
		return false, nil
	}
	return true, nil
}

func sizeOf(records [][]byte) (n int) {
	for _, b := range records {
		n += len(b) + 8
	}
	return n
}

// join puts the changes that planes before this one have kept before its own. What cannot be read is lost, and said.
func (r *recorder) join(ctx context.Context) error {
	records, err := r.vault.load(ctx)
	if err != nil && !errors.Is(err, record.ErrDamaged) {
		return fmt.Errorf("read the changes of planes before this one: %w", err)
	}
	entries, unreadable := changes.Read(records)
	if err := errors.Join(err, unreadable); err != nil {
		r.log.Warn("changes of planes before this one are lost, or a part of them", "error", err, "read", len(entries))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	numbers := r.kept.Prepend(entries)
	for i, job := range r.jobs {
		r.jobs[i].number = numbers(job.number)
	}
	return nil
}

// said says once what is wrong with the vault, and that it is mended.
func (r *recorder) said(_ bool, err error) {
	r.mu.Lock()
	was := r.trouble
	r.trouble = err
	r.mu.Unlock()
	switch {
	case err != nil && was == nil:
		r.log.Error("changes are not kept; `fairlead changes` shows them, but not past a restart of this plane", "error", err)
	case err == nil && was != nil:
		r.log.Info("changes are kept again")
	}
}
