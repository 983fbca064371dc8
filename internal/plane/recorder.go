package plane

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/internal/changes"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// recorder keeps the changes of objects, and writes them into a vault while its plane leads. The loop tells it of them and waits
// for nothing.
type recorder struct {
	vault vault
	now   func() time.Time
	log   *slog.Logger
	stamp *stamp
	wake  chan struct{}

	mu      sync.Mutex
	kept    *changes.Log
	jobs    []undescribed
	leads   delta.Revision // the first of the epoch; zero: the plane does not lead
	trouble error          // why changes are not kept

	// Of run alone.
	joined uint64
	size   int // of what is in the vault, bytes
	anew   bool
}

// undescribed is a change whose diff has yet to be made.
type undescribed struct {
	number        uint64
	before, after snapshot.Object
}

func newRecorder(c Config, v vault) (*recorder, error) {
	who, err := newStamp(c)
	if err != nil {
		return nil, err
	}
	bound := changes.MaxBytes
	if most, _ := v.bounds(); most < 2*bound {
		bound = most / 2
	}
	return &recorder{vault: v, now: c.Now, log: c.Log, stamp: who, wake: make(chan struct{}, 1), kept: changes.New(bound)}, nil
}

// Changes are the last changes of objects, newest first. Nobody may change them.
func (p *Plane) Changes(context.Context) ([]model.Change, error) {
	if err := p.silent(); err != nil {
		return nil, err
	}
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	return p.recorder.kept.List(), nil
}

// note takes a change. Without a stamp that nobody can forge it has no author.
func (r *recorder) note(before snapshot.Object, c snapshot.Change, rev delta.Revision) {
	e := changes.Entry{Change: model.Change{
		At: r.now(), Epoch: rev.Epoch, Revision: rev.Number, Verb: model.ChangeChanged, Object: object(c.Key),
	}}
	switch {
	case c.Object == nil:
		e.Verb, e.Version = model.ChangeDeleted, before.GetResourceVersion()
	case before == nil:
		e.Verb = model.ChangeCreated
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Object != nil {
		e.Version = c.Object.GetResourceVersion()
		e.Who = r.stamp.author(c.Object)
	}
	r.jobs = append(r.jobs, undescribed{r.kept.Add(e), before, c.Object})
	if n := len(r.jobs) - changes.MaxEntries; n > 0 {
		clear(r.jobs[:n])
		r.jobs = r.jobs[n:] // the log has let go of them
	}
	signal(r.wake)
}

// reached notes that a machine runs these revisions.
func (r *recorder) reached(machine string, revisions []delta.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept.Reached(machine, revisions, r.now()) {
		signal(r.wake)
	}
}

// lead says which revision is the first of the epoch in which the plane leads; zero: it does not.
func (r *recorder) lead(first delta.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leads = first; first != (delta.Revision{}) {
		r.kept.Lead(first)
	} else {
		r.trouble = nil
	}
	signal(r.wake)
}

// run makes the diffs, and keeps the changes, until ctx is done and once more then.
func (r *recorder) run(ctx context.Context) {
	_, every := r.vault.bounds()
	r.stamp.look(ctx)
	looks := time.NewTicker(stampEvery)
	defer looks.Stop()
	again := keepAgain
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepLast)
			defer cancel()
			r.describe()
			r.said(r.keep(last))
			return
		case <-looks.C:
			r.stamp.look(ctx)
			continue
		case <-retry:
		case <-r.wake:
			r.describe()
			if retry != nil {
				continue // the vault rests
			}
		}
		r.describe()
		wrote, err := r.keep(ctx)
		r.said(wrote, err)
		switch {
		case err != nil:
			retry, again = time.After(again), min(2*again, keepAgainMost)
		case wrote:
			retry, again = time.After(every), keepAgain
		default:
			retry = nil
		}
	}
}

// describe makes the diffs that are due.
func (r *recorder) describe() {
	for {
		r.mu.Lock()
		if len(r.jobs) == 0 {
			r.jobs = nil
			r.mu.Unlock()
			return
		}
		job := r.jobs[0]
		r.jobs[0] = undescribed{}
		r.jobs = r.jobs[1:]
		r.mu.Unlock()
		fields, more := changes.Diff(asMap(job.before), asMap(job.after))
		r.mu.Lock()
		r.kept.Describe(job.number, fields, more)
		r.mu.Unlock()
	}
}

// asMap is an object as JSON has it; nil: there is none.
func asMap(o snapshot.Object) map[string]any {
	if o == nil {
		return nil
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	return m
}
