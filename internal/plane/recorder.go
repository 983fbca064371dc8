package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/changes"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/record"
	"fairlead.dev/internal/snapshot"
)

// StampPolicy is the name of the admission policy that writes who changed an object, and of its binding.
const StampPolicy = "fairlead-changed-by"

const (
	changesHeader     = "fairlead changes 1\n"
	changesSecretType = corev1.SecretType("fairlead.dev/changes")
	// secretChangesBytes bounds changes that are kept in Secrets: each part is written whole.
	secretChangesBytes = 1 << 20
	// stampEvery is how often it is looked whether the API says who changes objects.
	stampEvery = time.Minute
	// maxWho bounds the name of a user, bytes.
	maxWho = 256
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

// recorder keeps the changes of objects, and writes them into a vault while its plane leads. The loop tells it of them and waits
// for nothing.
type recorder struct {
	vault vault
	now   func() time.Time
	log   *slog.Logger
	api   kubernetes.Interface
	wake  chan struct{}

	mu      sync.Mutex
	kept    *changes.Log
	jobs    []recorded
	leads   delta.Revision // the first of the epoch; zero: the plane does not lead
	stamped bool           // the API says who changes objects
	always  bool           // the configuration says that it does
	trouble error          // why changes are not kept

	// Of run alone.
	joined uint64
	size   int // of what is in the vault, bytes
	anew   bool
}

// recorded is a change whose diff has yet to be made.
type recorded struct {
	number        uint64
	before, after snapshot.Object
}

func newRecorder(c Config, v vault) (*recorder, error) {
	api, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return nil, fmt.Errorf("make the client for admission policies: %w", err)
	}
	bound := changes.MaxBytes
	if most, _ := v.bounds(); most < 2*bound {
		bound = most / 2
	}
	return &recorder{vault: v, now: c.Now, log: c.Log, stamped: c.Stamped, always: c.Stamped, api: api, wake: make(chan struct{}, 1), kept: changes.New(bound)}, nil
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

// before are the objects of a batch as they were. It is nil before every resource of the API is read.
func (l *loop) before(b snapshot.Batch) []snapshot.Object {
	if !l.synced {
		return nil
	}
	seen := make([]snapshot.Object, len(b.Changes))
	for i, c := range b.Changes {
		if c.Key.Kind != snapshot.KindEndpointSlice {
			seen[i] = l.snapshot.Get(c.Key)
		}
	}
	return seen
}

// record has the changes of a batch recorded. Machines were sent them after the revision before.
func (l *loop) record(seen []snapshot.Object, b snapshot.Batch, before delta.Revision) {
	if seen == nil {
		return
	}
	rev := l.rev
	if rev == before || l.plane.serving.Load() == 0 {
		rev = delta.Revision{}
	}
	if l.plane.serving.Load() != 0 && rev == (delta.Revision{}) {
		rev.Epoch = l.rev.Epoch
	}
	for i, c := range b.Changes {
		if isRecorded(seen[i], c) {
			l.plane.recorder.note(seen[i], c, rev)
		}
	}
	l.traceChanges(seen, b, rev)
}

// isRecorded says whether a change may be one that a user made. It takes next to no time: status alone changes often.
func isRecorded(before snapshot.Object, c snapshot.Change) bool {
	after := c.Object
	if c.Key.Kind == snapshot.KindEndpointSlice || before == nil && after == nil {
		return false
	}
	private := true
	for _, o := range []snapshot.Object{before, after} {
		if o == nil {
			continue
		}
		if o.GetLabels()[v1alpha1.LabelUpstream] != "" {
			return false
		}
		private = private && isPrivate(o)
	}
	if private {
		return false
	}
	if before == nil || after == nil || before.GetUID() != after.GetUID() {
		return true
	}
	if !maps.Equal(before.GetLabels(), after.GetLabels()) || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) {
		return true
	}
	if g := after.GetGeneration(); g != 0 {
		return g != before.GetGeneration()
	}
	switch a := after.(type) {
	case *corev1.Service:
		b, is := before.(*corev1.Service)
		return !is || !reflect.DeepEqual(b.Spec, a.Spec)
	case *corev1.Secret:
		b, is := before.(*corev1.Secret)
		return !is || !reflect.DeepEqual(b.Data, a.Data)
	case *corev1.ConfigMap:
		b, is := before.(*corev1.ConfigMap)
		return !is || !reflect.DeepEqual(b.Data, a.Data)
	case *corev1.Namespace:
		return false
	}
	return true
}

// isPrivate says of Secrets and ConfigMaps that they have nothing for machines, or are the plane's own or Kubernetes'.
func isPrivate(o snapshot.Object) bool {
	switch o := o.(type) {
	case *corev1.Secret:
		return o.Type != corev1.SecretTypeTLS && len(o.Data) == 0 || strings.HasPrefix(string(o.Type), "fairlead.dev/") || o.Type == corev1.SecretTypeServiceAccountToken
	case *corev1.ConfigMap:
		return len(o.Data) == 0 || o.Name == "kube-root-ca.crt" || o.Namespace == Namespace && o.Name == v1.ReadConfigMap
	}
	return false
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
		e.Who = r.author(c.Object)
	}
	r.jobs = append(r.jobs, recorded{r.kept.Add(e), before, c.Object})
	if n := len(r.jobs) - changes.MaxEntries; n > 0 {
		clear(r.jobs[:n])
		r.jobs = r.jobs[n:] // the log has let go of them
	}
	signal(r.wake)
}

// author is who wrote an object last; empty: that is not known. r.mu is held.
func (r *recorder) author(o snapshot.Object) string {
	if !r.stamped {
		return ""
	}
	who := o.GetAnnotations()[v1alpha1.AnnotationChangedBy]
	return strings.ToValidUTF8(strings.Clone(who[:min(len(who), maxWho)]), "")
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
	r.lookForStamp(ctx)
	stamp := time.NewTicker(stampEvery)
	defer stamp.Stop()
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
		case <-stamp.C:
			r.lookForStamp(ctx)
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

// lookForStamp looks whether the API says who changes objects: otherwise whoever writes an object could say so.
func (r *recorder) lookForStamp(ctx context.Context) {
	if r.always {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	policies := r.api.AdmissionregistrationV1()
	_, err := policies.MutatingAdmissionPolicies().Get(ctx, StampPolicy, metav1.GetOptions{})
	if err == nil {
		_, err = policies.MutatingAdmissionPolicyBindings().Get(ctx, StampPolicy, metav1.GetOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return // it is looked again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stamped = err == nil
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
		r.jobs[0] = recorded{}
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
