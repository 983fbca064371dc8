package plane

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// authorities is what the command line is told of them.
func (r *rig) authorities() AuthorityStatus {
	r.t.Helper()
	s, err := ReadAuthorityStatus(context.Background(), r.client, time.Now)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// keeps waits until it is written down that a machine keeps a certificate of an authority.
func (r *rig) keeps(name, pin string) {
	r.t.Helper()
	await(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}, "it is written down what "+name+" keeps", func(m *v1alpha1.Machine) error {
		if got := m.Annotations[authorityAnnotation]; got != pin {
			return fmt.Errorf("it is %q, want %q", got, pin)
		}
		return nil
	})
}

// refusesToRetire checks that the first authority cannot be retired, because of these machines.
func (r *rig) refusesToRetire(machines ...string) {
	r.t.Helper()
	_, err := RetireAuthority(context.Background(), r.client, time.Now, nil)
	if err == nil || !strings.HasSuffix(err.Error(), ": "+strings.Join(machines, ", ")) {
		r.t.Errorf("retired with machines that did not renew: %v", err)
	}
}

// told waits until the agent knows that certificates come with so many authorities, of which the one
// with the pin signs.
func (a *fakeAgent) told(pin string, authorities int) {
	a.t.Helper()
	a.await("is told of the authorities", func() error {
		if got := base64.RawURLEncoding.EncodeToString(a.trust.GetIssuer()); got != pin || len(a.trust.GetAuthorities()) != authorities {
			return fmt.Errorf("%s signs, of %d", got, len(a.trust.GetAuthorities()))
		}
		return nil
	})
}

// reconnect is connect for an agent that was connected before: what it was told then counts no more.
func (a *fakeAgent) reconnect(address string) {
	a.t.Helper()
	a.with(func() {
		a.trust = nil
		delete(a.held, typeMachine)
	})
	a.connect(address)
}

// served waits until the agent has a stream, and was sent its machine's configuration.
func (a *fakeAgent) served() {
	a.t.Helper()
	a.await("is served", func() error {
		if a.streams == 0 {
			return errors.Join(errors.New("it has no stream"), a.ended)
		}
		return a.get(typeMachine, a.name, &agentv1.MachineConfig{})
	})
}

// ends waits until the agent's stream has ended so.
func (a *fakeAgent) ends(code codes.Code, words string) {
	a.t.Helper()
	a.await("loses its stream", func() error {
		if status.Code(a.ended) != code || !strings.Contains(a.ended.Error(), words) {
			return errors.Join(errors.New("the stream did not end so"), a.ended)
		}
		return nil
	})
}

// TestAuthorityIsRotated: machines that are connected, that come back, and that join meanwhile go on
// through a whole rotation, over a change of the leader; then certificates of the retired authority
// are refused, and nobody trusts it.
func TestAuthorityIsRotated(t *testing.T) {
	r := newRig(t)
	r.world()
	ctx := context.Background()
	// A machine that is busy renews late: the lease is to change hands once, when it is given back.
	calm := func(c *Config) {
		c.Lease = LeaseTimes{Duration: 20 * time.Second, Renew: 15 * time.Second, Retry: 200 * time.Millisecond}
	}
	one, two := r.plane("one", calm).awaitReady(), r.plane("two", calm).awaitStandby()
	a, b := r.joined(one, "edge-1"), r.joined(one, "edge-2")
	first := r.authorities().Authorities[0].Pin
	disconnect := a.connect(one.AgentAddress().String())
	a.served()
	a.told(first, 1)
	before := newFakeAgent(t, "edge-1")
	before.key, before.cert, before.root = a.key, a.cert, a.root
	printed := r.token("edge-3", time.Hour)

	next, err := RotateAuthority(ctx, r.client, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RotateAuthority(ctx, r.client, time.Now); err == nil || !strings.Contains(err.Error(), "under way since") {
		t.Errorf("a second rotation: %v", err)
	}
	r.refusesToRetire("edge-1", "edge-2")
	a.told(next, 2)
	if err := a.renew(one.AgentAddress().String()); err != nil {
		t.Fatal(err)
	}
	r.keeps("edge-1", next)
	r.refusesToRetire("edge-2")

	// Another plane leads, and knows all that.
	disconnect()
	one.stop()
	address := two.awaitReady().AgentAddress().String()
	a.reconnect(address)
	a.served()
	a.told(next, 2)
	r.refusesToRetire("edge-2")
	b.connect(address) // it was away since it joined
	b.served()
	b.told(next, 2)
	c := newFakeAgent(t, "edge-3")
	if err := c.join(address, printed); err != nil {
		t.Fatalf("with a token of before the rotation: %v", err)
	}
	c.connect(address)
	c.served()
	r.keeps("edge-3", next)
	if err := b.renew(address); err != nil {
		t.Fatal(err)
	}
	r.keeps("edge-2", next)
	if s := r.authorities(); len(s.Behind) != 0 || s.Authorities[0].Machines != 0 || s.Authorities[1].Machines != 3 || !s.Authorities[0].Shown || !s.Authorities[1].Signs {
		t.Errorf("before the retirement: %+v", s)
	}

	unused := r.token("edge-4", time.Hour)
	retired, err := RetireAuthority(ctx, r.client, time.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if retired.Pin != first || len(retired.Left) != 0 || len(retired.Tokens) != 1 || retired.Tokens[0].Machine != "edge-4" {
		t.Errorf("retired %+v", retired)
	}
	a.told(next, 1)
	b.ends(codes.Aborted, "no longer trusted") // it has renewed on a connection of before
	b.reconnect(address)
	b.served()
	after := newFakeAgent(t, "edge-1")
	after.key, after.cert, after.root = before.key, before.cert, a.root
	after.connect(address)
	after.ends(codes.Unauthenticated, "unknown authority")
	before.connect(address)
	before.ends(codes.Unavailable, "unknown authority") // of the plane: it trusts the retired one alone
	if err := newFakeAgent(t, "edge-4").join(address, unused); err == nil || !strings.Contains(err.Error(), "no authority of the token's pin") {
		t.Errorf("with a token of before the retirement: %v", err)
	}
	if err := newFakeAgent(t, "edge-4").join(address, r.token("edge-4", time.Hour)); err != nil {
		t.Errorf("with a new token: %v", err)
	}
	if s := r.authorities(); s.Rotating() || s.Authorities[0].Pin != next || s.Authorities[0].Machines != 4 || len(s.Strangers) != 0 {
		t.Errorf("after the retirement: %+v", s)
	}
	// The last trust in the retired authority goes with the next renewal.
	if err := a.renew(address); err != nil {
		t.Fatal(err)
	}
	if n := len(a.root.Subjects()); n != 1 { //nolint:staticcheck // it is no system's pool
		t.Errorf("edge-1 trusts %d authorities", n)
	}
}

// TestRotationsAtOnce: of several people who begin or end a rotation at once, one does.
func TestRotationsAtOnce(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	if _, err := loadAuthority(ctx, r.client, time.Now, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	rotate := func() error { _, err := RotateAuthority(ctx, r.client, time.Now); return err }
	if n := atOnce(t, rotate, "under way since", "at the same time"); n != 1 {
		t.Errorf("rotate: %d of them did", n)
	}
	s := r.authorities()
	if !s.Rotating() {
		t.Fatalf("there are %+v", s)
	}
	retire := func() error { _, err := RetireAuthority(ctx, r.client, time.Now, nil); return err }
	if n := atOnce(t, retire, "no rotation is under way", "at the same time"); n != 1 {
		t.Errorf("retire: %d of them did", n)
	}
	if now := r.authorities(); now.Rotating() || now.Authorities[0].Pin != s.Authorities[1].Pin {
		t.Errorf("there are %+v", now)
	}
}

// atOnce tries something many times at once and returns how often it was done. The others must fail
// with one of the words.
func atOnce(t *testing.T, try func() error, words ...string) int32 {
	t.Helper()
	var done atomic.Int32
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			err := try()
			switch {
			case err == nil:
				done.Add(1)
			case !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return done.Load()
}

// TestRetiredWithoutAMachine: a machine that is away for good does not keep an authority for ever, if
// it is named; it is known from then on as one that must join again, and holds up no later rotation.
func TestRetiredWithoutAMachine(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	if _, err := RotateAuthority(ctx, r.client, time.Now); err == nil || !strings.Contains(err.Error(), "there is none yet") {
		t.Errorf("without an authority: %v", err)
	}
	if _, err := loadAuthority(ctx, r.client, time.Now, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	r.create(
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "away", Annotations: map[string]string{KeysAnnotation: "k1"}}},
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "never-joined"}},
	)
	for range 2 {
		if _, err := RotateAuthority(ctx, r.client, time.Now); err != nil {
			t.Fatal(err)
		}
		if s := r.authorities(); len(s.Strangers) == 0 {
			r.refusesToRetire("away")
			if _, err := RetireAuthority(ctx, r.client, time.Now, []string{"never-joined"}); err == nil || !strings.HasSuffix(err.Error(), ": away") {
				t.Errorf("retired without another machine than the one that is away: %v", err)
			}
			_, err := RetireAuthority(ctx, r.client, time.Now, []string{"away", "gone", "never-joind"})
			for _, says := range []string{`no Machine has the name "never-joind"; did you mean never-joined?`, `no Machine has the name "gone"`} {
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("retired without machines that are not there: %v, want %s", err, says)
				}
			}
			if !r.authorities().Rotating() {
				t.Fatal("the rotation has ended all the same")
			}
		}
		if _, err := RetireAuthority(ctx, r.client, time.Now, []string{"away"}); err != nil {
			t.Fatal(err)
		}
		if s := r.authorities(); s.Rotating() || s.Authorities[0].Machines != 0 || !slices.Equal(s.Strangers, []string{"away"}) {
			t.Errorf("after the retirement: %+v", s)
		}
	}
}

// TestRetiredAfterAWeek: a machine that was away since before the rotation has no good certificate then,
// and must join again anyway: it holds up nothing. One that is not away does.
func TestRetiredAfterAWeek(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	if _, err := loadAuthority(ctx, r.client, time.Now, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	machine := func(name string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{KeysAnnotation: "k1"}}}
	}
	away, there := machine("away"), machine("there")
	r.create(away, there)
	away.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.MachineReady, Status: metav1.ConditionFalse, Reason: v1alpha1.MachineReasonLost, LastTransitionTime: metav1.Now(),
	}}
	if err := r.client.Status().Update(ctx, away); err != nil {
		t.Fatal(err)
	}
	if _, err := RotateAuthority(ctx, r.client, time.Now); err != nil {
		t.Fatal(err)
	}
	r.refusesToRetire("away", "there")
	later := func() time.Time { return time.Now().Add(southbound.MachineLife + time.Hour) }
	if _, err := RetireAuthority(ctx, r.client, later, nil); err == nil || !strings.HasSuffix(err.Error(), ": there") {
		t.Errorf("with a machine that is not away: %v", err)
	}
	if err := r.client.Delete(ctx, there); err != nil {
		t.Fatal(err)
	}
	if retired, err := RetireAuthority(ctx, r.client, later, nil); err != nil || !slices.Equal(retired.Left, []string{"away"}) {
		t.Errorf("with a machine that is away: %+v, %v", retired, err)
	}
}

// TestForgottenRotation is a problem once no certificate of before it can be good.
func TestForgottenRotation(t *testing.T) {
	now := time.Now()
	authority := func() *southbound.CA {
		ca, err := southbound.NewCA(func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	clock := &clock{}
	look := newTrust(trustConfig{identity: "one", now: clock.Now, authorities: southbound.NewAuthorities(authority(), authority())})
	if p := look.problems(); len(p) > 0 {
		t.Errorf("at the beginning: %v", p)
	}
	clock.jump(southbound.MachineLife + time.Hour)
	if p := look.problems(); len(p) != 1 || !strings.Contains(p[0].Message, "fairlead authority retire") {
		t.Errorf("after a week: %v", p)
	}
	look.authorities.Set(authority(), nil)
	if p := look.problems(); len(p) > 0 {
		t.Errorf("after the end: %v", p)
	}
}

// TestAuthoritiesStayWhereTheSecretDoesNot: a Secret that somebody deletes or damages ends no machine's
// connection. One that is gone is stored again by the plane that leads.
func TestAuthoritiesStayWhereTheSecretDoesNot(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	p := r.plane("one").awaitReady()
	look := newTrust(p.trust.trustConfig)
	if _, err := RotateAuthority(ctx, r.client, time.Now); err != nil || !look.follow(ctx) {
		t.Fatal("no rotation is under way: ", err)
	}
	before, roots := r.authorities().Authorities, string(p.trust.authorities.Roots())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: AuthoritySecret}}
	stay := func(what string) {
		t.Helper()
		if !look.follow(ctx) || string(p.trust.authorities.Roots()) != roots {
			t.Errorf("%s: the plane trusts others now", what)
		}
	}
	early, err := newAuthority(func() time.Time { return time.Now().Add(48 * time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	edit(r, secret, func(s *corev1.Secret) { s.Data[nextField] = early })
	stay("with a next one that is not good yet")
	if begun, err := loadAuthority(ctx, r.client, time.Now, slog.New(slog.DiscardHandler)); err != nil || begun.Pin() != before[0].Pin || begun.Next() != "" {
		t.Errorf("a plane that begins with a next one that is not good yet: %v", err)
	}
	edit(r, secret, func(s *corev1.Secret) { s.Data[authorityField], s.Data[nextField] = early, nil })
	stay("with another one that is not good yet")
	edit(r, secret, func(s *corev1.Secret) { s.Data[authorityField] = s.Data[authorityField][:100] })
	stay("damaged")
	if err := r.client.Delete(ctx, secret); err != nil {
		t.Fatal(err)
	}
	stay("gone")
	eventually(t, "the secret is stored again", func() error { return reread(r, secret) })
	if again := r.authorities().Authorities; len(before) != 2 || !slices.Equal(again, before) {
		t.Errorf("stored again are %+v, want %+v", again, before)
	}
	stay("stored again")
}
