package plane

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func parse(t *testing.T, printed string) southbound.Token {
	t.Helper()
	token, err := southbound.ParseToken(printed)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokenIsSpentOnce(t *testing.T) {
	r := newRig(t)
	ctx, now := context.Background(), time.Now()
	printed, err := CreateToken(ctx, r.client, TokenRequest{Machine: "edge-1", Role: "edge", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	token := parse(t, printed)
	secret := &corev1.Secret{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: tokenPrefix + token.ID}, secret); err != nil {
		t.Fatal(err)
	}
	_, hidden, _ := strings.Cut(token.Reveal(), ".")
	for field, value := range secret.Data {
		if bytes.Contains(value, []byte(hidden)) {
			t.Errorf("field %s holds the token's secret", field)
		}
	}

	store := tokens{r.client, func() time.Time { return now }}
	want := southbound.Identity{Machine: "edge-1", Role: "edge"}
	if id, err := store.Check(ctx, token, "k0"); err != nil || id != want {
		t.Fatalf("check: %v, %v", id, err)
	}
	// Many agents at once: one gets in, however it ends.
	var winners atomic.Int32
	var winner atomic.Value
	var wg sync.WaitGroup
	for i := range 8 {
		key := southbound.KeyID(fmt.Sprintf("k%d", i))
		wg.Go(func() {
			id, err := store.Spend(ctx, token, key)
			switch {
			case err == nil && id == want:
				winners.Add(1)
				winner.Store(key)
			case !errors.Is(err, southbound.ErrToken):
				t.Errorf("%s: %v, %v", key, id, err)
			}
		})
	}
	wg.Wait()
	if winners.Load() != 1 {
		t.Fatalf("%d agents spent the token", winners.Load())
	}
	// The one that got it may ask again: it may have died before it stored the answer.
	if id, err := store.Spend(ctx, token, winner.Load().(southbound.KeyID)); err != nil || id != want {
		t.Errorf("the same key again: %v, %v", id, err)
	}
	if _, err := store.Check(ctx, token, "another"); !errors.Is(err, southbound.ErrToken) || !strings.Contains(err.Error(), "it was used at") {
		t.Errorf("a used token: %v", err)
	}
	list, err := ListTokens(ctx, r.client, now)
	if err != nil || len(list) != 1 || list[0].Spent.IsZero() || list[0].Machine != "edge-1" {
		t.Errorf("list: %+v, %v", list, err)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	r := newRig(t)
	ctx, now := context.Background(), time.Now()
	printed, err := CreateToken(ctx, r.client, TokenRequest{Machine: "edge-1", TTL: time.Minute, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	token := parse(t, printed)
	parts := strings.Split(printed, ".")
	for _, c := range []struct {
		name, printed, words string
		at                   time.Time
	}{
		{"wrong secret", strings.Join([]string{parts[0], parts[1], strings.Repeat("A", 43), parts[3]}, "."), "secret is wrong", now},
		{"unknown", strings.Join([]string{parts[0], "aaaaaaaaaa", parts[2], parts[3]}, "."), "there is no token with ID aaaaaaaaaa", now},
		{"expired", printed, "it expired at", now.Add(time.Minute)},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := tokens{r.client, func() time.Time { return c.at }}
			for what, try := range map[string]func(context.Context, southbound.Token, southbound.KeyID) (southbound.Identity, error){"check": store.Check, "spend": store.Spend} {
				if _, err := try(ctx, parse(t, c.printed), "k"); !errors.Is(err, southbound.ErrToken) || !strings.Contains(err.Error(), c.words) {
					t.Errorf("%s: %v, want %q", what, err, c.words)
				}
			}
		})
	}
	if err := RevokeToken(ctx, r.client, token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := (tokens{r.client, func() time.Time { return now }}).Spend(ctx, token, "k"); !errors.Is(err, southbound.ErrToken) {
		t.Errorf("a revoked token: %v", err)
	}
	if err := RevokeToken(ctx, r.client, token.ID); err == nil {
		t.Error("a token was revoked twice")
	}
}

func TestTokensThatAreNotMade(t *testing.T) {
	r := newRig(t)
	for name, req := range map[string]TokenRequest{
		"no name":    {},
		"bad name":   {Machine: "Edge_1"},
		"bad role":   {Machine: "edge-1", Role: "a b"},
		"a new role": {Machine: "edge-1", Role: "router"},
		"too long":   {Machine: "edge-1", TTL: MaxTokenTTL + time.Second},
		"too short":  {Machine: "edge-1", TTL: time.Millisecond},
		"long name":  {Machine: strings.Repeat("a", 60)},
		"dead clock": {Machine: "edge-1", TTL: -time.Second},
	} {
		req.Now = time.Now()
		if printed, err := CreateToken(context.Background(), r.client, req); err == nil {
			t.Errorf("%s: made %s", name, parse(t, printed))
		}
	}
	if list, err := ListTokens(context.Background(), r.client, time.Now()); err != nil || len(list) != 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// TestTokenMakesNoSecondAuthority: where machines have joined, no token is made by another authority
// than theirs, whatever became of it, and no plane makes another one at once.
func TestTokenMakesNoSecondAuthority(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	machine := func(name string, annotations map[string]string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	}
	r.create(machine("never-joined", nil))
	r.token("edge-1", time.Hour) // the first one makes the authority
	r.create(machine("joined", map[string]string{KeysAnnotation: "k1"}))
	r.token("edge-2", time.Hour)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: AuthoritySecret}}
	if err := r.client.Delete(ctx, secret); err != nil {
		t.Fatal(err)
	}
	_, err := CreateToken(ctx, r.client, TokenRequest{Machine: "edge-3", Now: time.Now()})
	if err == nil || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("without the authority of a machine that has joined: %v", err)
	}
	// A plane that begins makes one when none that leads has stored it again.
	clock := &clock{}
	p, err := New(Config{REST: r.restConfig(), Identity: "one", AgentAddress: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ownedAuthority(ctx); err == nil || !strings.Contains(err.Error(), "a leading plane restores it") {
		t.Errorf("a plane that begins: %v", err)
	}
	if err := reread(r, secret); !apierrors.IsNotFound(err) {
		t.Errorf("another authority was made: %v", err)
	}
	clock.jump(storedAgain)
	if _, err := p.ownedAuthority(ctx); err != nil {
		t.Errorf("a plane that has waited: %v", err)
	}
}

func TestOldTokensArePruned(t *testing.T) {
	r := newRig(t)
	ctx, now := context.Background(), time.Now()
	for _, name := range []string{"a", "b"} {
		ttl := time.Minute
		if name == "b" {
			ttl = 2 * tokenGrace
		}
		if _, err := CreateToken(ctx, r.client, TokenRequest{Machine: name, TTL: ttl, Now: now}); err != nil {
			t.Fatal(err)
		}
	}
	if err := pruneTokens(ctx, r.client, now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if list, err := ListTokens(ctx, r.client, now); err != nil || len(list) != 2 {
		t.Fatalf("an expired token did not stay for whoever uses it: %v, %v", list, err)
	}
	if err := pruneTokens(ctx, r.client, now.Add(2*time.Minute+tokenGrace)); err != nil {
		t.Fatal(err)
	}
	list, err := ListTokens(ctx, r.client, now)
	if err != nil || len(list) != 1 || list[0].Machine != "b" {
		t.Errorf("left are %v, %v", list, err)
	}
}

func TestPlanesThatStartAtOnceShareTheAuthority(t *testing.T) {
	r := newRig(t)
	roots := make([]string, 6)
	var wg sync.WaitGroup
	for i := range roots {
		wg.Go(func() {
			ca, err := loadAuthority(context.Background(), r.client, time.Now, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			roots[i] = string(ca.Roots())
		})
	}
	wg.Wait()
	if slices.Sort(roots); roots[0] == "" || roots[0] != roots[len(roots)-1] {
		t.Error("two planes have different authorities")
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: AuthoritySecret}}
	edit(r, secret, func(s *corev1.Secret) { s.Data[authorityField] = s.Data[authorityField][:100] })
	_, err := loadAuthority(context.Background(), r.client, time.Now, slog.New(slog.DiscardHandler))
	var unusable unusableAuthority
	if !errors.As(err, &unusable) || !strings.Contains(err.Error(), AuthoritySecret) {
		t.Errorf("a damaged authority: %v", err)
	}
}

// countedAPI counts the questions for one object.
type countedAPI struct {
	client.Client
	gets atomic.Int64
}

func (c *countedAPI) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.gets.Add(1)
	return c.Client.Get(ctx, key, o, opts...)
}

// TestMadeUpTokensCostLittle holds that tokens which somebody makes up without a pause are asked for a few
// times, once each, and that a good one from elsewhere lets its machine in meanwhile.
func TestMadeUpTokensCostLittle(t *testing.T) {
	r := newRig(t)
	printed, err := CreateToken(context.Background(), r.client, TokenRequest{Machine: "edge-1", Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := southbound.NewCA(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	now := func() time.Time { return start } // nothing is forgiven meanwhile
	api := &countedAPI{Client: r.client}
	log := slog.New(slog.DiscardHandler)
	server, err := southbound.New(southbound.Config{
		Views: southbound.NewViews(), Authority: ca, Tokens: tokens{api, now}, Leader: alwaysLeads{}, Now: now, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	machines := newRegistry(api, alwaysLeads{}, ca, now, log)
	machines.know()
	join := func(from string, token southbound.Token) error {
		at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: at})
		_, err := machines.unary(ctx, &agentv1.JoinRequest{Token: token.Reveal(), Csr: newFakeAgent(t, "edge-1").request()}, nil,
			func(ctx context.Context, req any) (any, error) { return server.Join(ctx, req.(*agentv1.JoinRequest)) })
		return err
	}
	const tries = 500
	refused := 0
	for range tries {
		token, err := southbound.NewToken(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		switch err := join("192.0.2.1:1000", token); status.Code(err) {
		case codes.Unauthenticated:
			refused++
		case codes.Unavailable: // an agent tries again
		default:
			t.Fatal(err)
		}
	}
	if got := api.gets.Load(); refused == 0 || got != int64(refused) || refused > tries/5 {
		t.Errorf("%d made-up tokens: %d were looked up, with %d questions", tries, refused, got)
	}
	if err := join("192.0.2.2:1000", parse(t, printed)); err != nil {
		t.Errorf("a good token from elsewhere: %v", err)
	}
}

// TestNewLeaderKeepsNames holds that a plane which has just begun to lead gives nobody the name of a machine
// that may come back, and lets in machines that have never joined.
func TestNewLeaderKeepsNames(t *testing.T) {
	r := newRig(t)
	first := r.plane("first").awaitReady()
	a := r.joined(first, "edge-1")
	first.stop()
	second := r.plane("second", func(c *Config) { c.TTL = time.Hour }).awaitReady()
	taker := newFakeAgent(t, "edge-1")
	if err := taker.join(second.AgentAddress().String(), r.token("edge-1", time.Hour)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "may still reconnect") {
		t.Errorf("a join under the name of a machine that may come back: %v", err)
	}
	r.joined(second, "edge-2")
	a.connect(second.AgentAddress().String())
	a.await("is back", func() error {
		if a.streams == 0 {
			return errors.New("it has no stream")
		}
		return nil
	})
}
