package plane

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// TokenSecretType is the type of the Secrets that stand for join tokens.
	TokenSecretType corev1.SecretType = "fairlead.dev/join-token"
	// tokenPrefix begins their names; the token's ID follows.
	tokenPrefix = "join-token-"
	// Fields of such a Secret. The token itself is not among them.
	tokenHash    = "hash"
	tokenMachine = "machine"
	tokenRole    = "role"
	tokenExpiry  = "expires"
	tokenKey     = "key"    // whose it became
	tokenSpent   = "spent"  // when
	tokenJoined  = "joined" // when the Machine was written that it led to

	// DefaultTokenTTL is how long a token can be used unless somebody says otherwise.
	DefaultTokenTTL = time.Hour
	// MaxTokenTTL is the longest.
	MaxTokenTTL = 30 * 24 * time.Hour
	// Expired tokens are kept for a while, so that whoever uses one is told why.
	tokenGrace = 24 * time.Hour
)

// What tokens may be made for.
const (
	RoleEdge    = agentv1.RoleEdge
	RoleBackend = agentv1.RoleBackend
)

// TokenRequest says whom a token lets in.
type TokenRequest struct {
	Machine string        // the only name that it can join as
	Role    string        // RoleEdge, also when empty, or RoleBackend: that of the Machine which is made
	TTL     time.Duration // DefaultTokenTTL when 0
	Now     time.Time     // required
	Random  io.Reader     // crypto/rand when nil
}

// TokenInfo is what can be known of a token without its secret.
type TokenInfo struct {
	ID      string    `json:"id"`
	Machine string    `json:"machine"`
	Role    string    `json:"role,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Expired bool      `json:"expired"`
	// Spent is when an agent joined with it; zero while it can be used.
	Spent time.Time `json:"spent,omitzero"`
	key   southbound.KeyID
	// joined says that the Machine of the join was written: from then on, the Machine
	// says who is good, and the token brings back nobody.
	joined bool
}

// usable says whether a machine can join with it that has not yet.
func (t TokenInfo) usable() bool { return !t.Expired && t.Spent.IsZero() }

func (t TokenInfo) compare(o TokenInfo) int {
	return cmp.Or(cmp.Compare(t.Machine, o.Machine), cmp.Compare(t.ID, o.ID))
}

// CreateToken makes a token and returns the form that an agent takes. Only a hash of
// it is stored. It makes the agents' authority too when there is none yet and no machine has joined.
func CreateToken(ctx context.Context, c client.Client, r TokenRequest) (string, error) {
	id := southbound.Identity{Machine: r.Machine, Role: r.Role}
	if err := id.Validate(); err != nil {
		return "", fmt.Errorf("create a token: %w", err)
	}
	if r.Role != "" && r.Role != RoleEdge && r.Role != RoleBackend {
		return "", fmt.Errorf("create a token: role %q: want %s or %s", r.Role, RoleEdge, RoleBackend)
	}
	switch {
	case r.TTL == 0:
		r.TTL = DefaultTokenTTL
	case r.TTL < time.Second || r.TTL > MaxTokenTTL:
		return "", fmt.Errorf("create a token: a time to live of %s: want 1s to %s", r.TTL, MaxTokenTTL)
	}
	if r.Random == nil {
		r.Random = rand.Reader
	}
	if err := mayMakeAuthority(ctx, c); err != nil {
		return "", fmt.Errorf("create a token: %w", err)
	}
	now := func() time.Time { return r.Now }
	authority, err := loadAuthority(ctx, c, now, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	token, err := southbound.NewToken(r.Random)
	if err != nil {
		return "", err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: tokenPrefix + token.ID},
		Type:       TokenSecretType,
		Data: map[string][]byte{
			tokenHash:    []byte(token.Hash()),
			tokenMachine: []byte(r.Machine),
			tokenRole:    []byte(r.Role),
			tokenExpiry:  []byte(r.Now.Add(r.TTL).UTC().Format(time.RFC3339)),
		},
	}
	if err := c.Create(ctx, secret); err != nil {
		return "", fmt.Errorf("store the token for machine %s: %w", r.Machine, err)
	}
	return token.Print(authority.Pin()), nil
}

// ListTokens returns the tokens that are stored, by machine and ID. Spent and expired
// ones stay for a day after they expired.
func ListTokens(ctx context.Context, c client.Client, now time.Time) ([]TokenInfo, error) {
	secrets, err := tokenSecrets(ctx, c)
	if err != nil {
		return nil, err
	}
	tokens := make([]TokenInfo, 0, len(secrets))
	for i := range secrets {
		info, err := tokenInfo(&secrets[i], now)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, info)
	}
	slices.SortFunc(tokens, TokenInfo.compare)
	return tokens, nil
}

// RevokeToken makes a token useless. One that does not exist is an error.
func RevokeToken(ctx context.Context, c client.Client, id string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: tokenPrefix + id}}
	if err := c.Delete(ctx, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("no token has the ID %s ('fairlead token list' lists them)", id)
		}
		return fmt.Errorf("revoke token %s: %w", id, err)
	}
	return nil
}

// revokeTokens removes the tokens that could be used, and returns them. Used and expired ones stay, so
// that whoever shows one is told which it is.
func revokeTokens(ctx context.Context, c client.Client, now time.Time) ([]TokenInfo, error) {
	return dropTokens(ctx, c, now, TokenInfo.usable)
}

// dropTokens removes the tokens that which picks, and returns them, by machine and ID. Unreadable
// ones stay for somebody to look at: they let nobody in.
func dropTokens(ctx context.Context, c client.Client, now time.Time, which func(TokenInfo) bool) ([]TokenInfo, error) {
	secrets, err := tokenSecrets(ctx, c)
	if err != nil {
		return nil, err
	}
	var dropped []TokenInfo
	for i := range secrets {
		info, err := tokenInfo(&secrets[i], now)
		if err != nil || !which(info) {
			continue
		}
		if err := c.Delete(ctx, &secrets[i]); err != nil && !apierrors.IsNotFound(err) {
			return dropped, fmt.Errorf("revoke token %s: %w", info.ID, err)
		}
		dropped = append(dropped, info)
	}
	slices.SortFunc(dropped, TokenInfo.compare)
	return dropped, nil
}

// tokens are the join tokens in the API, for the machines' server.
type tokens struct {
	client client.Client
	now    func() time.Time
}

var _ southbound.Tokens = tokens{}

// Check says whom a token lets in, without using it up.
func (t tokens) Check(ctx context.Context, token southbound.Token, key southbound.KeyID) (southbound.Identity, error) {
	_, info, err := t.check(ctx, token, key)
	return southbound.Identity{Machine: info.Machine, Role: info.Role}, err
}

// Spend binds a token to a key for good. Of several keys that try at once one gets
// it: the API takes the first write.
func (t tokens) Spend(ctx context.Context, token southbound.Token, key southbound.KeyID) (southbound.Identity, error) {
	for {
		secret, info, err := t.check(ctx, token, key)
		if err != nil {
			return southbound.Identity{}, err
		}
		id := southbound.Identity{Machine: info.Machine, Role: info.Role}
		if info.key == key {
			return id, nil
		}
		secret.Data[tokenKey] = []byte(key)
		secret.Data[tokenSpent] = []byte(t.now().UTC().Format(time.RFC3339))
		err = t.client.Update(ctx, secret)
		switch {
		case err == nil:
			return id, nil
		case !apierrors.IsConflict(err):
			return southbound.Identity{}, fmt.Errorf("spend the token: %w", err)
		}
		// Somebody changed it meanwhile: look again who has it.
	}
}

func (t tokens) check(ctx context.Context, token southbound.Token, key southbound.KeyID) (*corev1.Secret, TokenInfo, error) {
	secret := &corev1.Secret{}
	err := t.client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: tokenPrefix + token.ID}, secret)
	if apierrors.IsNotFound(err) {
		return nil, TokenInfo{}, fmt.Errorf("%w: there is no token with ID %s: it was revoked, or used long ago, or belongs to another plane", southbound.ErrToken, token.ID)
	} else if err != nil {
		return nil, TokenInfo{}, fmt.Errorf("look up the token: %w", err)
	}
	if secret.Type != TokenSecretType || !token.Matches(string(secret.Data[tokenHash])) {
		return nil, TokenInfo{}, fmt.Errorf("%w: its secret is wrong", southbound.ErrToken)
	}
	info, err := tokenInfo(secret, t.now())
	switch {
	case err != nil:
		return nil, TokenInfo{}, err
	case info.Expired:
		return nil, TokenInfo{}, fmt.Errorf("%w: it expired at %s", southbound.ErrToken, info.Expires.Format(time.RFC3339))
	case info.key != "" && info.key != key:
		return nil, TokenInfo{}, fmt.Errorf("%w: it was used at %s", southbound.ErrToken, info.Spent.Format(time.RFC3339))
	case info.joined:
		if err := t.checkMachine(ctx, info); err != nil {
			return nil, TokenInfo{}, err
		}
	}
	return secret, info, nil
}

// checkMachine says whether the key that a token led to is good still.
func (t tokens) checkMachine(ctx context.Context, info TokenInfo) error {
	m := &v1alpha1.Machine{}
	err := t.client.Get(ctx, client.ObjectKey{Name: info.Machine}, m)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: it was used at %s, and machine %s was deleted since; create a new one (fairlead token create --machine %s, and --role backend for one with backends only)",
			southbound.ErrToken, info.Spent.Format(time.RFC3339), info.Machine, info.Machine)
	case err != nil:
		return fmt.Errorf("look up the token's machine %s: %w", info.Machine, err)
	case !slices.Contains(keysOf(m), string(info.key)):
		return fmt.Errorf("%w: it was used at %s, and its key is no longer valid for machine %s; create a new one (fairlead token create --machine %s, and --role backend for one with backends only)",
			southbound.ErrToken, info.Spent.Format(time.RFC3339), info.Machine, info.Machine)
	}
	return nil
}

// joined says whether a token led to a Machine before.
func (t tokens) joined(ctx context.Context, id string) (bool, error) {
	secret := &corev1.Secret{}
	err := t.client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: tokenPrefix + id}, secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("look up token %s: %w", id, err)
	}
	return len(secret.Data[tokenJoined]) > 0, nil
}

// join notes that a token led to a Machine.
func (t tokens) join(ctx context.Context, id string) error {
	for {
		secret := &corev1.Secret{}
		err := t.client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: tokenPrefix + id}, secret)
		if err == nil && len(secret.Data[tokenJoined]) == 0 {
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			secret.Data[tokenJoined] = []byte(t.now().UTC().Format(time.RFC3339))
			err = t.client.Update(ctx, secret)
		}
		switch {
		case err == nil || apierrors.IsNotFound(err): // revoked meanwhile: it brings back nobody
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("note that token %s led to a machine: %w", id, err)
		}
	}
}

// pruneTokens removes tokens that expired a while ago.
func pruneTokens(ctx context.Context, c client.Client, now time.Time) error {
	secrets, err := tokenSecrets(ctx, c)
	if err != nil {
		return err
	}
	var failed []error
	for i := range secrets {
		info, err := tokenInfo(&secrets[i], now)
		if err != nil || !info.Expires.Add(tokenGrace).Before(now) {
			continue // unreadable ones stay for somebody to look at
		}
		if err := c.Delete(ctx, &secrets[i]); err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("remove the expired token %s: %w", info.ID, err))
		}
	}
	return errors.Join(failed...)
}

func tokenSecrets(ctx context.Context, c client.Client) ([]corev1.Secret, error) {
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.InNamespace(Namespace)); err != nil {
		return nil, fmt.Errorf("list join tokens: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(s corev1.Secret) bool { return s.Type != TokenSecretType }), nil
}

func tokenInfo(s *corev1.Secret, now time.Time) (TokenInfo, error) {
	expires, err := time.Parse(time.RFC3339, string(s.Data[tokenExpiry]))
	if err != nil {
		return TokenInfo{}, fmt.Errorf("read secret %s/%s: field %s: %w", s.Namespace, s.Name, tokenExpiry, err)
	}
	info := TokenInfo{
		ID:      strings.TrimPrefix(s.Name, tokenPrefix),
		Machine: string(s.Data[tokenMachine]),
		Role:    string(s.Data[tokenRole]),
		Created: s.CreationTimestamp.Time,
		Expires: expires,
		Expired: !now.Before(expires),
		key:     southbound.KeyID(s.Data[tokenKey]),
		joined:  len(s.Data[tokenJoined]) > 0,
	}
	if text := string(s.Data[tokenSpent]); text != "" {
		if info.Spent, err = time.Parse(time.RFC3339, text); err != nil {
			return TokenInfo{}, fmt.Errorf("read secret %s/%s: field %s: %w", s.Namespace, s.Name, tokenSpent, err)
		}
	}
	return info, nil
}
