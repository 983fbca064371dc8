package plane

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/southbound"
)

const (
	// AuthoritySecret holds the agents' authorities, their private keys included. Whoever
	// reads it can be a plane to machines.
	AuthoritySecret = "fairlead-agent-authority"
	// authorityField is the authority by which planes are known. nextField, while a rotation is
	// under way, is the one that takes its place; planes of before rotations leave it alone.
	authorityField = "authority.pem"
	nextField      = "next.pem"
)

// ensureNamespace makes the namespace that everything of the planes lives in.
func ensureNamespace(ctx context.Context, c client.Client) error {
	_, err := derive.Create(ctx, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	if err == nil {
		return nil
	}
	if apierrors.IsForbidden(err) && c.Get(ctx, client.ObjectKey{Name: Namespace}, &corev1.Namespace{}) == nil {
		return nil // it exists, and we may not make it
	}
	return fmt.Errorf("make namespace %s: %w", Namespace, err)
}

// loadAuthority reads the agents' authorities, or makes the first one. Of several planes that make
// one at once, all end up with the same. A next one that is not good by this clock is left out.
func loadAuthority(ctx context.Context, c client.Client, now func() time.Time, log *slog.Logger) (*southbound.Authorities, error) {
	if err := ensureNamespace(ctx, c); err != nil {
		return nil, err
	}
	secret, err := authoritySecret(ctx, c)
	if apierrors.IsNotFound(err) {
		if err := makeAuthority(ctx, c, now, log); err != nil {
			return nil, err
		}
		secret, err = authoritySecret(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	shown, next, err := parseAuthorities(secret.Data, now)
	if err != nil {
		return nil, unusableAuthority{fmt.Errorf("secret %s, %w; restore it from a backup, or delete it and let every machine join anew", client.ObjectKeyFromObject(secret), err)}
	}
	if checkGood(nextField, next, now()) != nil {
		next = nil // a plane that follows the Secret says so
	}
	return southbound.NewAuthorities(shown, next), nil
}

// authoritySecret reads the Secret. A NotFound of the API stays one.
func authoritySecret(ctx context.Context, c client.Client) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: Namespace, Name: AuthoritySecret}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("read the agents' authority from secret %s: %w", key, err)
	}
	return secret, nil
}

// makeAuthority stores the first authority, unless somebody else just did.
func makeAuthority(ctx context.Context, c client.Client, now func() time.Time, log *slog.Logger) error {
	data, err := newAuthority(now)
	if err != nil {
		return err
	}
	secret := newAuthoritySecret(data)
	made, err := derive.Create(ctx, c, secret)
	if err != nil {
		return fmt.Errorf("store the agents' authority in secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	if made {
		log.Info("made the agents' authority", "secret", client.ObjectKeyFromObject(secret).String())
	}
	return nil
}

func newAuthoritySecret(shown []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: AuthoritySecret},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{authorityField: shown},
	}
}

// mayMakeAuthority says why an authority is better not made: the Secret is gone, and machines have
// certificates of what it held.
func mayMakeAuthority(ctx context.Context, c client.Client) error {
	if _, err := authoritySecret(ctx, c); !apierrors.IsNotFound(err) {
		return err
	}
	var machines v1alpha1.MachineList
	if err := c.List(ctx, &machines); err != nil && !apierrors.IsNotFound(err) { // else the kind is not served yet
		return fmt.Errorf("list machines: %w", err)
	}
	if slices.ContainsFunc(machines.Items, func(m v1alpha1.Machine) bool { return len(keysOf(&m)) > 0 }) {
		return fmt.Errorf("secret %s/%s with the agents' authority is missing, and machines depend on it: a leading plane restores it within seconds; if none runs, restore a backup, or start a plane, which creates a new authority that every machine must join again", Namespace, AuthoritySecret)
	}
	return nil
}

// newAuthority is an authority in the form in which it is stored.
func newAuthority(now func() time.Time) ([]byte, error) {
	ca, err := southbound.NewCA(now)
	if err != nil {
		return nil, err
	}
	return ca.Bytes()
}

// parseAuthorities reads the fields of the Secret; next is nil while no rotation is under way.
func parseAuthorities(data map[string][]byte, now func() time.Time) (shown, next *southbound.CA, err error) {
	if shown, err = southbound.ParseCA(data[authorityField], now); err != nil {
		return nil, nil, fmt.Errorf("field %s: %w", authorityField, err)
	}
	if len(data[nextField]) == 0 {
		return shown, nil, nil
	}
	if next, err = southbound.ParseCA(data[nextField], now); err != nil {
		return nil, nil, fmt.Errorf("field %s: %w", nextField, err)
	}
	return shown, next, nil
}

// checkGood says what is wrong with an authority that is not good at a time: it was made by another
// clock. None (nil) is good.
func checkGood(field string, ca *southbound.CA, now time.Time) error {
	if ca == nil || ca.Good(now) {
		return nil
	}
	return fmt.Errorf("field %s: it is valid from %s to %s, but the clock of this plane says %s: correct the clock that is wrong",
		field, ca.Since().UTC().Format(time.RFC3339), ca.Until().UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// unusableAuthority is an authority that was read and cannot be used: no retry helps.
type unusableAuthority struct{ error }

func (u unusableAuthority) Unwrap() error { return u.error }
