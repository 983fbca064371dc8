package plane

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/history"
)

// settled is flush, again when somebody has touched what is kept.
func (l *life) settled() error {
	l.t.Helper()
	err := l.flush()
	if errors.Is(err, history.ErrMoved) {
		err = l.flush()
	}
	l.keeper.note(err)
	return err
}

// Whoever labels, annotates or deletes Secrets of revisions ends nothing: they are written
// anew. Only those of a later epoch stay, and the plane says so until they are gone.
func TestHistoryInSecretsThatOthersTouch(t *testing.T) {
	r := newRig(t)
	// Planes make it when they lead; here none does.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if err := r.client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	secrets := func() []corev1.Secret {
		t.Helper()
		var list corev1.SecretList
		if err := r.client.List(t.Context(), &list, client.InNamespace(Namespace), client.HasLabels{historyLabel}); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	inSecrets := func(epoch uint64) *life {
		l := begin(t, filepath.Join(t.TempDir(), "none"), 0, time.Unix(1000, 0), hosts{})
		l.epoch, l.keeper.vault = epoch, newSecretVault(r.client, ownedBy{})
		l.keeper.lead(epoch)
		return l
	}
	kept := func() int {
		t.Helper()
		records, err := newSecretVault(r.client, ownedBy{}).load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(records) - 1 // the first is a state
	}
	step := func(l *life, i int) error {
		host := historyHost("a", i)
		l.change(hosts{host.HostKey: host})
		return l.settled()
	}
	l := inSecrets(1)
	if err := step(l, 0); err != nil || kept() != 1 {
		t.Fatalf("%d steps are kept, %v", kept(), err)
	}
	for i, touch := range []func(*corev1.Secret) error{
		func(s *corev1.Secret) error {
			s.Annotations = map[string]string{"backup.example/seen": "yes"}
			return r.client.Update(t.Context(), s)
		},
		func(s *corev1.Secret) error { return r.client.Delete(t.Context(), s) },
	} {
		for _, s := range secrets() {
			if err := touch(&s); err != nil {
				t.Fatal(err)
			}
		}
		if err := step(l, i+1); err != nil || kept() != i+2 || l.keeper.healthy() != nil {
			t.Errorf("touched %d times: %d steps are kept, %v", i+1, kept(), err)
		}
	}
	if err := step(inSecrets(2), 5); err != nil {
		t.Fatal(err)
	}
	before := kept()
	if err := step(l, 6); !errors.Is(err, errFenced) || !errors.Is(l.keeper.healthy(), errFenced) || kept() != before {
		t.Errorf("a plane of an earlier epoch: %v, healthy %v, %d steps are kept, before %d", err, l.keeper.healthy(), kept(), before)
	}
	for _, s := range secrets() {
		if err := r.client.Delete(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.settled(); err != nil || l.keeper.healthy() != nil || kept() != 4 {
		t.Errorf("those of the later epoch are gone: %v, healthy %v, %d steps are kept", err, l.keeper.healthy(), kept())
	}
}

// cutShort is an API that goes away before the first part of a series is written, which is
// written last.
type cutShort struct {
	client.Client
	away bool
}

func (c *cutShort) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	if c.away && partNumber(o.GetName()) == 0 {
		return errors.New("the API is away")
	}
	return c.Client.Create(ctx, o, options...)
}

// What a leadership leaves that ended while it wrote goes, also where it wrote after the
// next one had looked. What a later one writes stays, and so does what is the last whole
// series while the next is not.
func TestUnfinishedRevisionsAreRemoved(t *testing.T) {
	r := newRig(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if err := r.client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	there := func() string {
		t.Helper()
		var list corev1.SecretList
		if err := r.client.List(t.Context(), &list, client.InNamespace(Namespace), client.HasLabels{historyLabel}); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range list.Items {
			names = append(names, strings.TrimPrefix(s.Name, historyPrefix))
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	want := func(when, names string) {
		t.Helper()
		if got := there(); got != names {
			t.Errorf("%s: %s, want %s", when, got, names)
		}
	}
	vault := func() (*secretVault, *cutShort) {
		c := &cutShort{Client: r.client}
		v := newSecretVault(c, ownedBy{})
		v.part = 64
		return v, c
	}
	records := [][]byte{bytes.Repeat([]byte("a"), 100)}
	leader, _ := vault()
	if err := leader.replace(t.Context(), 3, records); err != nil {
		t.Fatal(err)
	}
	want("a leader has written", "3-1-0 3-1-1 3-1-2")
	// One that was deposed goes on where it was, and one of a later epoch has begun.
	for _, s := range []series{{2, 7}, {4, 1}} {
		v, _ := vault()
		v.series = s
		for part := 2; part > 0; part-- {
			if err := v.create(t.Context(), v.secret(part, []byte("rest"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: historyPrefix + "1-1-1", Labels: map[string]string{historyLabel: "1-1"}}}
	if err := r.client.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := leader.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("it has tidied up", "1-1-1 3-1-0 3-1-1 3-1-2 4-1-1 4-1-2")
	if err := r.client.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	next, api := vault()
	if err := next.replace(t.Context(), 5, records); err != nil {
		t.Fatal(err)
	}
	want("the next one has written", "5-1-0 5-1-1 5-1-2")
	// The former leader, which does not know, removes nothing of it.
	if err := leader.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader, api.away = next, true
	if err := leader.replace(t.Context(), 5, records); err == nil {
		t.Fatal("it wrote without an API")
	}
	if err := leader.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("the API went away", "5-1-0 5-1-1 5-1-2 5-2-1 5-2-2")
	if got, err := leader.load(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("there are %d records, %v", len(got), err)
	}
	api.away = false
	if err := leader.replace(t.Context(), 5, records); err != nil {
		t.Fatal(err)
	}
	want("it is back", "5-3-0 5-3-1 5-3-2")
}

// A leader looks by itself, also while nothing changes.
func TestALeaderTidiesUp(t *testing.T) {
	r := newRig(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if err := r.client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	l := begin(t, filepath.Join(t.TempDir(), "none"), 0, time.Unix(1000, 0), hosts{})
	owner := ownedBy{}
	l.epoch, l.keeper.vault, l.keeper.tidies = 2, newSecretVault(r.client, owner), 10*time.Millisecond
	l.keeper.lead(2)
	if err := l.settled(); err != nil {
		t.Fatal(err)
	}
	late := newSecretVault(r.client, owner)
	late.series = series{1, 1}
	rest := late.secret(1, []byte("rest"))
	if err := r.client.Create(t.Context(), rest); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.keeper.write(ctx) }()
	eventually(t, "the rest of an earlier leadership to go", func() error {
		if err := reread(r, rest); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", cmp.Or(err, errors.New("and is found")))
		}
		return nil
	})
	cancel()
	<-ended
	if records, err := late.load(t.Context()); err != nil || len(records) == 0 {
		t.Errorf("of the leader there are %d records, %v", len(records), err)
	}
}

// hungVault takes a whole state, and does not return before it is released.
type hungVault struct {
	fileVault
	called, release chan struct{}
}

func (v *hungVault) replace(context.Context, uint64, [][]byte) error {
	close(v.called)
	<-v.release
	return io.ErrUnexpectedEOF
}

// A vault that hangs costs no memory, and is in the status while it does.
func TestHistoryWhileItsVaultHangs(t *testing.T) {
	l := begin(t, filepath.Join(t.TempDir(), "revisions"), 0, time.Unix(1000, 0), hosts{})
	v := &hungVault{fileVault: *l.file, called: make(chan struct{}), release: make(chan struct{})}
	l.keeper.vault, l.keeper.patience, l.keeper.log = v, time.Millisecond, slog.New(slog.DiscardHandler)
	l.keeper.lead(1)
	l.keeper.catchUp(t)
	flushed := make(chan error, 1)
	go func() {
		_, err := l.keeper.flush(t.Context())
		flushed <- err
	}()
	<-v.called
	const steps = 3 * history.Limit
	for i := range steps {
		host := historyHost("a", i%7)
		l.change(hosts{host.HostKey: host})
		l.keeper.catchUp(t)
	}
	eventually(t, "the status says so", func() error {
		if err := l.keeper.healthy(); err == nil || !strings.Contains(err.Error(), "does not answer within 1ms") {
			return errors.New("it says " + text(err))
		}
		return nil
	})
	if got := l.keeper.kept; len(got.Steps) > history.Limit*9/8 || int(got.Folded)+len(got.Steps) != steps {
		t.Errorf("%d steps are held and %d folded, of %d", len(got.Steps), got.Folded, steps)
	}
	close(v.release)
	if err := <-flushed; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("it ends with %v", err)
	}
	// What comes next is kept whole, with what was folded meanwhile.
	l.keeper.vault, l.keeper.patience = &v.fileVault, time.Minute
	err := l.flush()
	if l.keeper.note(err); err != nil || l.keeper.healthy() != nil {
		t.Fatal(err, l.keeper.healthy())
	}
	if log, first := begin(t, v.path, 2, l.now.Add(time.Second), l.Hosts()).known(); first.LetGo+len(log) != steps {
		t.Errorf("after a restart %d steps, %d let go, want %d", len(log), first.LetGo, steps)
	}
}

func text(err error) string {
	if err == nil {
		return "nothing"
	}
	return err.Error()
}

// ownedBy is the owner of a vault's Secrets.
type ownedBy struct{ reference *metav1.OwnerReference }

func (o ownedBy) ownerReference() *metav1.OwnerReference { return o.reference }
