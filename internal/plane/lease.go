package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/southbound"
)

// Where planes keep what is theirs.
const (
	// Namespace holds the Lease, the join tokens and the agents' authority.
	Namespace = "fairlead-system"
	// leaseName is the Lease that the leader holds.
	leaseName = "fairlead-plane"
	// epochAnnotation of the Lease is the epoch of its last holder.
	epochAnnotation = "fairlead.dev/epoch"
	// addressAnnotation of the Lease is host:port of its holder's agent endpoint.
	addressAnnotation = "fairlead.dev/address"
	// consoleAnnotation of the Lease is host:port of its holder's console.
	consoleAnnotation = "fairlead.dev/console"
	// readAnnotation of the Lease is host:port of its holder's read API.
	readAnnotation = "fairlead.dev/read"
)

// LeaseTimes are how leadership is kept. All three are measured by each plane's own
// clock, from what it saw last.
type LeaseTimes struct {
	Duration time.Duration // others may take a Lease that was not renewed for so long
	Renew    time.Duration // a leader that could not renew for so long stops to write
	Retry    time.Duration // between two tries
}

// defaultLeaseTimes let another plane lead 3 to 4 s after the leader has died. An etcd that chooses
// another leader takes no writes for 1 to 2 s, and no plane is to lose the Lease for that.
var defaultLeaseTimes = LeaseTimes{Duration: 3 * time.Second, Renew: 2 * time.Second, Retry: 400 * time.Millisecond}

// LeaseOfOne is for a plane that no other one stands by for: there is nobody to give way to, however
// late its renewals are.
var LeaseOfOne = LeaseTimes{Duration: 30 * time.Second, Renew: 20 * time.Second, Retry: time.Second}

// term is one plane's leadership as it knows it.
type term struct {
	// Epoch is that of this plane's present or last leadership; 0 is none.
	Epoch uint64
	// Held says that this plane has the Lease and knows of no other holder. It stays
	// true while the API is away: nobody can have taken the Lease that we know of, and
	// agents refuse us once they saw a larger epoch.
	Held bool
	// Renewing says that the Lease is held and was renewed in time: the API may be
	// written to.
	Renewing bool
	// Leader is host:port of the present holder, as far as known.
	Leader string
	// Identity, Console and Read are its name, and host:port of its console and of its read API.
	Identity, Console, Read string
}

// lease is the Lease as an election's lock. Taking it raises the epoch in the same
// write, so no two leaderships share one.
type lease struct {
	client   client.Client
	identity string
	address  string
	console  string                 // empty: there is none to be told of
	read     string                 // the same of the read API
	owner    *metav1.OwnerReference // of the Lease, once it is written; nil: none
	log      *slog.Logger
	changed  func() // called after the term changed, without locks held
	// took is called after the Lease of another plane was taken, which had run out, with host:port of that one's
	// agent endpoint, without mu held. Nil: nobody wants to know.
	took func(address string)

	failure error           // of run, once it has returned
	ends    <-chan struct{} // closed when run is to end; nil before

	op sync.Mutex // serialises what talks to the API
	at *coordinationv1.Lease

	mu   sync.Mutex
	term term
}

var _ resourcelock.Interface = (*lease)(nil)

// run takes part in the election until ctx is done, and gives the Lease back then.
func (l *lease) run(ctx context.Context, t LeaseTimes) error {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, Name: leaseName, ReleaseOnCancel: true,
		LeaseDuration: t.Duration, RenewDeadline: t.Renew, RetryPeriod: t.Retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: l.notRenewed,
		},
	})
	if err != nil {
		return fmt.Errorf("take part in the election of the leader: %w", err)
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // transitions are logged here
	l.op.Lock()
	l.ends = ctx.Done()
	l.op.Unlock()
	for ctx.Err() == nil {
		elector.Run(ctx)
	}
	return nil
}

// ownerReference is the owner of what this plane stores; nil: none.
func (l *lease) ownerReference() *metav1.OwnerReference { return l.owner }

// current returns the present term.
func (l *lease) current() term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

func (l *lease) change(f func(*term)) {
	l.mu.Lock()
	before := l.term
	f(&l.term)
	after := l.term
	l.mu.Unlock()
	if before == after {
		return
	}
	switch {
	case after.Held && (!before.Held || before.Epoch != after.Epoch):
		l.log.Info("leading", "epoch", after.Epoch)
	case before.Held && !after.Held && after.Leader == "":
		l.log.Info("stopped leading; the Lease is free", "epoch", before.Epoch)
	case before.Held && !after.Held:
		l.log.Warn("another plane leads", "leader", after.Leader, "epoch", before.Epoch)
	case !after.Held && after.Leader != "" && (before.Leader != after.Leader || before.Identity != after.Identity):
		l.log.Info("standing by: another plane leads", "leader", after.Leader)
	case before.Renewing && !after.Renewing:
		l.log.Warn("the lease cannot be renewed; serving on, writing nothing", "epoch", after.Epoch)
	case !before.Renewing && after.Renewing:
		l.log.Info("the lease is renewed again", "epoch", after.Epoch)
	}
	l.changed()
}

// notRenewed is called when the Lease could not be renewed in time.
func (l *lease) notRenewed() { l.change(func(t *term) { t.Renewing = false }) }

// succeeded ends a leadership of which the API would say that it is over, if it could be reached: the plane that
// took the Lease says so. One that is renewed is nobody else's, whatever an API says that was restored of a backup.
func (l *lease) succeeded(by southbound.Successor) error {
	var err error
	l.change(func(t *term) {
		switch {
		case !t.Held:
		case t.Renewing:
			err = fmt.Errorf("%w, and its lease is renewed", southbound.ErrKeepsOn)
		case by.Epoch <= t.Epoch:
			err = fmt.Errorf("%w in epoch %d, and %s in %d", southbound.ErrKeepsOn, t.Epoch, by.Identity, by.Epoch)
		default:
			t.Held, t.Leader, t.Identity, t.Console, t.Read = false, by.Address, by.Identity, by.Console, ""
		}
	})
	return err
}

// exceed raises the epoch above one that an agent has seen: the Lease came out of an
// older backup. It does nothing when the epoch is larger already.
func (l *lease) exceed(ctx context.Context, seen uint64) error {
	l.op.Lock()
	defer l.op.Unlock()
	if t := l.current(); !t.Held {
		return errors.New("raise the epoch: this plane does not lead")
	} else if t.Epoch > seen {
		return nil
	}
	if _, err := l.get(ctx); err != nil {
		return fmt.Errorf("raise the epoch above %d: %w", seen, err)
	}
	if !l.current().Held {
		return errors.New("raise the epoch: this plane does not lead any more")
	}
	if err := l.update(ctx, l.at.Spec, seen); err != nil {
		return fmt.Errorf("raise the epoch above %d: %w", seen, err)
	}
	return nil
}

// Get reads the Lease for the election.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.op.Lock()
	defer l.op.Unlock()
	at, err := l.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&at.Spec)
	raw, err := json.Marshal(record)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the election record: %w", err)
	}
	return record, raw, nil
}

// get reads the Lease and notes who holds it.
func (l *lease) get(ctx context.Context) (*coordinationv1.Lease, error) {
	at := &coordinationv1.Lease{}
	if err := l.client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: leaseName}, at); err != nil {
		return nil, err // the election looks at its kind
	}
	l.at = at
	if h := holder(at); h != l.identity {
		address, console, read := "", "", ""
		if h != "" {
			address, console, read = at.Annotations[addressAnnotation], at.Annotations[consoleAnnotation], at.Annotations[readAnnotation]
		}
		l.change(func(t *term) {
			t.Held, t.Renewing, t.Leader, t.Identity, t.Console, t.Read = false, false, address, h, console, read
		})
	}
	return at, nil
}

// Create makes the first Lease.
func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.op.Lock()
	defer l.op.Unlock()
	epoch := l.current().Epoch + 1
	at := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: leaseName, Annotations: l.annotations(epoch)},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&r),
	}
	at.OwnerReferences, _ = derive.Owned(nil, l.owner)
	if err := l.client.Create(ctx, at); err != nil {
		return err
	}
	l.at = at
	l.change(func(t *term) { *t = l.held(epoch) })
	return nil
}

// held is the term of this plane's leadership.
func (l *lease) held(epoch uint64) term {
	return term{Epoch: epoch, Held: true, Renewing: true, Leader: l.address, Identity: l.identity, Console: l.console, Read: l.read}
}

// Update takes, renews or gives back the Lease, whichever the record says.
func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.op.Lock()
	defer l.op.Unlock()
	if l.at == nil {
		return errors.New("update a lease that was not read")
	}
	if r.HolderIdentity == "" && !l.ending() {
		// The election gives back what it could not renew in time. On a plane that is short of processor
		// time that would end the streams of all machines, which then take what is left of it.
		return errors.New("give the lease back: this plane goes on, and another one may take it when it is over")
	}
	return l.update(ctx, resourcelock.LeaderElectionRecordToLeaseSpec(&r), 0)
}

// ending says whether the Lease is to be given back: this plane ends, or takes no part in an election.
func (l *lease) ending() bool {
	select {
	case <-l.ends:
		return true
	default:
		return l.ends == nil
	}
}

// update writes the spec under the version that was read. If that makes this plane
// the holder anew, or the epoch is not above the floor, the epoch rises with it.
func (l *lease) update(ctx context.Context, spec coordinationv1.LeaseSpec, floor uint64) error {
	if holder(l.at) != l.identity && (spec.HolderIdentity == nil || *spec.HolderIdentity != l.identity) {
		// The election gives back what it believes to hold, without a second look.
		return errors.New("give the lease back: another plane holds it")
	}
	now := l.current()
	next := l.at.DeepCopy()
	next.Spec = spec
	next.OwnerReferences, _ = derive.Owned(next.OwnerReferences, l.owner)
	stored, err := epochOf(l.at)
	if err != nil {
		l.log.Error("starting over; agents say what they have seen", "error", err)
	}
	epoch := now.Epoch
	mine := holder(next) == l.identity
	if mine {
		renewal := now.Held && holder(l.at) == l.identity && stored == now.Epoch && now.Epoch > floor
		if !renewal {
			epoch = max(stored, now.Epoch, floor) + 1
		}
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		maps.Copy(next.Annotations, l.annotations(epoch))
	} else {
		delete(next.Annotations, addressAnnotation)
		delete(next.Annotations, consoleAnnotation)
		delete(next.Annotations, readAnnotation)
	}
	if err := l.client.Update(ctx, next); err != nil {
		if apierrors.IsConflict(err) {
			l.log.Debug("the lease changed meanwhile", "error", err)
		}
		return err
	}
	before := l.at
	l.at = next
	l.change(func(t *term) {
		if mine {
			*t = l.held(epoch)
		} else {
			t.Held, t.Renewing, t.Leader, t.Identity, t.Console, t.Read = false, false, "", "", "", ""
		}
	})
	if address := before.Annotations[addressAnnotation]; l.took != nil && mine && address != "" && address != l.address && !slices.Contains([]string{"", l.identity}, holder(before)) {
		l.took(address)
	}
	return nil
}

func (l *lease) annotations(epoch uint64) map[string]string {
	return map[string]string{
		epochAnnotation: strconv.FormatUint(epoch, 10), addressAnnotation: l.address, consoleAnnotation: l.console, readAnnotation: l.read,
	}
}

// RecordEvent is where the election would record an event; logs say the same.
func (l *lease) RecordEvent(string) {}

// Identity is who takes part.
func (l *lease) Identity() string { return l.identity }

// Describe names the Lease.
func (l *lease) Describe() string { return Namespace + "/" + leaseName }

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func epochOf(l *coordinationv1.Lease) (uint64, error) {
	text := l.Annotations[epochAnnotation]
	if text == "" {
		return 0, nil
	}
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the epoch: annotation %s of lease %s/%s is %q: want a number", epochAnnotation, l.Namespace, l.Name, text)
	}
	return epoch, nil
}
