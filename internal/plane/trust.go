package plane

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
)

const (
	// followEvery is how often a plane looks whether the agents' authorities are others.
	followEvery = 2 * time.Second
	// followTime bounds one look, and the writes after it.
	followTime = 5 * time.Second
	// storedAgain is how long a plane that begins waits for one that leads to store authorities again
	// that were deleted.
	storedAgain = 3 * followEvery
	// noteAtOnce bounds the Machines that are written after one look.
	noteAtOnce = 64
)

// trust follows the Secret of the agents' authorities, which is changed from the command line, and
// notes at the Machines how far a rotation has come. What it cannot read changes nothing.
type trust struct {
	trustConfig
	look    chan struct{} // gets a token when somebody waits for a look
	changed chan struct{} // gets one when the authorities are others
	unread  string        // why the Secret could not be used, as last logged; of run alone
	unnoted string        // the same of the Machines

	mu     sync.Mutex
	wanted uint64 // the last epoch that somebody asked for
	known  uint64 // the last epoch since whose begin the Secret was read
}

// trustConfig is what a trust uses of its plane. All are required.
type trustConfig struct {
	client      client.Client
	authorities *southbound.Authorities
	lease       *lease
	serving     *atomic.Uint64 // the epoch in which agents are served
	machines    *registry
	server      *southbound.Server
	read        chan<- struct{} // gets a token when the authorities were read for an epoch
	identity    string
	now         func() time.Time
	log         *slog.Logger
}

func newTrust(c trustConfig) *trust {
	return &trust{trustConfig: c, look: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// askFor says whether the authorities were read since this plane has led in an epoch: the leader
// before it may have known one that this plane does not know, or trust one that it does not trust any
// more. If they were not, it has them read now, and the loop hears of it.
func (t *trust) askFor(epoch uint64) (read bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known >= epoch {
		return true
	}
	t.wanted = max(t.wanted, epoch)
	signal(t.look)
	return false
}

func (t *trust) run(ctx context.Context) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.look:
		case <-ticker.C:
		}
		t.mu.Lock()
		wanted := t.wanted
		t.mu.Unlock()
		if !t.follow(ctx) {
			continue
		}
		t.mu.Lock()
		news := wanted > t.known
		t.known = max(t.known, wanted)
		t.mu.Unlock()
		if news {
			signal(t.read)
		}
		t.note(ctx)
	}
}

// follow reads the Secret, and says whether the API told what it holds. Where it is damaged, the
// authorities stay as they were: machines go on, and a person has to mend it. Where it is gone, a
// plane that leads stores it again.
func (t *trust) follow(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	secret, err := authoritySecret(ctx, t.client)
	if err != nil && !apierrors.IsNotFound(err) {
		if apierrors.IsForbidden(err) { // of an API that is away others tell
			t.unread = t.say(t.unread, "the agents' authorities cannot be read, and a plane that does not know them does not begin to serve", err)
		}
		return false
	}
	if err != nil && t.lease.current().Renewing {
		if err = t.store(ctx); err == nil {
			return true
		}
	}
	var shown, next *southbound.CA
	if err == nil {
		shown, next, err = t.parse(secret.Data)
	}
	if t.unread = t.say(t.unread, "the agents' authorities stay as this plane knows them", err); err != nil {
		return true
	}
	if t.authorities.Set(shown, next) {
		t.log.Info("the agents' authorities have changed", "shown", shown.Pin(), "next", t.authorities.Next())
		t.server.TrustChanged()
		signal(t.changed)
	}
	return true
}

// store makes the Secret again that is gone, with what this plane knows: whoever made another
// authority in its place would put out every machine.
func (t *trust) store(ctx context.Context) error {
	shown, next, err := t.authorities.Bytes()
	if err != nil {
		return err
	}
	secret := newAuthoritySecret(shown)
	if next != nil {
		secret.Data[nextField] = next
	}
	secret.OwnerReferences, _ = derive.Owned(nil, t.lease.ownerReference())
	key := client.ObjectKeyFromObject(secret).String()
	if err := t.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("secret %s is gone, and cannot be stored again: %w", key, err)
	}
	t.log.Warn("the Secret of the agents' authorities was deleted; it is stored again", "secret", key)
	return nil
}

// parse reads the fields of the Secret. One that this plane does not show yet must be good by its
// clock: it would sign what nobody takes.
func (t *trust) parse(data map[string][]byte) (shown, next *southbound.CA, err error) {
	if shown, next, err = parseAuthorities(data, t.now); err != nil {
		return nil, nil, err
	}
	if err = checkGood(nextField, next, t.now()); err == nil && shown.Pin() != t.authorities.Pin() {
		err = checkGood(authorityField, shown, t.now())
	}
	return shown, next, err
}

// say logs trouble that is another than was said last, and returns what is said now.
func (t *trust) say(said, what string, err error) string {
	if err == nil {
		return ""
	}
	if err.Error() != said {
		t.log.Error("trouble with the agents' authorities", "what", what, "error", err)
	}
	return err.Error()
}

// note writes down of which authority machines keep a certificate: of the next one, or of another one
// than was written before. A plane that starts, and whoever retires an authority, must know it of
// machines that are away, too.
func (t *trust) note(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	if t.serving.Load() == 0 || !t.lease.current().Renewing {
		return
	}
	next, written := t.authorities.Next(), 0
	var err error
	for name, issuer := range t.server.Issuers() {
		noted, known := t.machines.noted(name)
		if !known || noted == issuer || noted == "" && issuer != next {
			continue
		}
		if err = t.machines.note(ctx, name, issuer); err != nil {
			break
		}
		if written++; written == noteAtOnce {
			break // the others have their turn at the next look
		}
	}
	if ctx.Err() == nil {
		t.unnoted = t.say(t.unnoted, "it is not known which machines have renewed their certificate", err)
	}
}

// problems is a rotation that somebody has forgotten: no certificate of before it is good any more,
// and the authority of before still is.
func (t *trust) problems() []model.Problem {
	since := t.authorities.RotatingSince()
	if since.IsZero() || t.now().Sub(since) <= southbound.MachineLife {
		return nil
	}
	return []model.Problem{{
		Severity: model.SeverityWarning, Subject: "Plane " + t.identity, Reason: "RotationNotEnded",
		Message: fmt.Sprintf("a rotation of the agents' authority has been under way since %s, and the authority of before is still trusted: 'fairlead authority retire' ends that", since.UTC().Format(time.RFC3339)),
	}}
}

// noted is what is written down of a machine's authority; known says whether there is a Machine.
func (r *registry) noted(name string) (authority string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, known := r.keys[name]
	return a.authority, known
}

// note writes down of which authority a machine keeps a certificate.
func (r *registry) note(ctx context.Context, name, authority string) error {
	deletions := r.deleted()
	m, err := noteAuthority(ctx, r.client, name, authority)
	if err == nil && m != nil {
		r.setUnless(deletions, name, m)
	}
	return err
}

// noteAuthority annotates a Machine, and returns it; nil where there is none any more. An empty
// authority takes the annotation away.
func noteAuthority(ctx context.Context, c client.Client, name, authority string) (*v1alpha1.Machine, error) {
	for {
		m := &v1alpha1.Machine{}
		err := c.Get(ctx, client.ObjectKey{Name: name}, m)
		if err == nil && m.Annotations[authorityAnnotation] != authority {
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			if m.Annotations[authorityAnnotation] = authority; authority == "" {
				delete(m.Annotations, authorityAnnotation)
			}
			err = c.Update(ctx, m)
		}
		switch {
		case err == nil:
			return m, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("write down the authority of machine %s: %w", name, err)
		}
	}
}
