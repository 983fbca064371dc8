package plane

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/southbound"
)

const (
	// AuthoritySecret holds the agents' authority, its private key included. Whoever
	// reads it can be any machine.
	AuthoritySecret = "fairlead-agent-authority"
	authorityField  = "authority.pem"
)

// ensureNamespace makes the namespace that everything of the planes lives in.
func ensureNamespace(ctx context.Context, c client.Client) error {
	err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	if apierrors.IsForbidden(err) && c.Get(ctx, client.ObjectKey{Name: Namespace}, &corev1.Namespace{}) == nil {
		return nil // it exists, and we may not make it
	}
	return fmt.Errorf("make namespace %s: %w", Namespace, err)
}

// loadAuthority reads the agents' authority, or makes it. Of several planes that make
// one at once, all end up with the same.
func loadAuthority(ctx context.Context, c client.Client, now func() time.Time, log *slog.Logger) (*southbound.CA, error) {
	if err := ensureNamespace(ctx, c); err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: Namespace, Name: AuthoritySecret}
	secret := &corev1.Secret{}
	err := c.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		ca, err := southbound.NewCA(now)
		if err != nil {
			return nil, err
		}
		data, err := ca.Bytes()
		if err != nil {
			return nil, err
		}
		err = c.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Type:       corev1.SecretTypeOpaque,
			Data:       map[string][]byte{authorityField: data},
		})
		switch {
		case err == nil:
			log.Info("made the agents' authority", "secret", key.String())
			return ca, nil
		case !apierrors.IsAlreadyExists(err):
			return nil, fmt.Errorf("store the agents' authority in secret %s: %w", key, err)
		}
		if err := c.Get(ctx, key, secret); err != nil {
			return nil, fmt.Errorf("read the agents' authority from secret %s: %w", key, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("read the agents' authority from secret %s: %w", key, err)
	}
	ca, err := southbound.ParseCA(secret.Data[authorityField], now)
	if err != nil {
		return nil, unusableAuthority{fmt.Errorf("secret %s, field %s: %w; restore it from a backup, or delete it and let every machine join anew", key, authorityField, err)}
	}
	return ca, nil
}

// unusableAuthority is an authority that was read and cannot be used: no retry helps.
type unusableAuthority struct{ error }

func (u unusableAuthority) Unwrap() error { return u.error }
