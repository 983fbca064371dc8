package plane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/near"
	"fairlead.dev/internal/southbound"
)

// AuthorityStatus says which authorities of the agents are trusted, and what machines keep of each.
type AuthorityStatus struct {
	// Authorities: the one by which planes are known, and during a rotation the next one.
	Authorities []AuthorityInfo `json:"authorities"`
	// Behind are machines that keep a certificate of the first during a rotation. When that is
	// retired, they have to join again.
	Behind []MachineBehind `json:"behind,omitempty"`
	// Strangers are machines that keep a certificate of an authority that was retired: they have
	// to join again.
	Strangers []string `json:"strangers,omitempty"`
	names     []string // of all Machines
}

// AuthorityInfo is what can be known of an authority without its key.
type AuthorityInfo struct {
	Pin   string    `json:"pin"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Shown: planes show a certificate of it, and join tokens carry its pin. Signs: what machines
	// get is of it.
	Shown bool `json:"shown"`
	Signs bool `json:"signs"`
	// Machines is how many keep a certificate of it.
	Machines int `json:"machines"`
}

// MachineBehind is a machine that has not renewed its certificate since a rotation began.
type MachineBehind struct {
	Machine string `json:"machine"`
	// Away is since when it does not report; zero while it does.
	Away time.Time `json:"away,omitzero"`
}

// ReadAuthorityStatus reads the agents' authorities and the Machines.
func ReadAuthorityStatus(ctx context.Context, c client.Client, now func() time.Time) (AuthorityStatus, error) {
	secret, err := authoritySecret(ctx, c)
	if err != nil {
		return AuthorityStatus{}, err
	}
	return authorityStatus(ctx, c, secret, now)
}

func authorityStatus(ctx context.Context, c client.Client, secret *corev1.Secret, now func() time.Time) (AuthorityStatus, error) {
	shown, next, err := parseAuthorities(secret.Data, now)
	if err != nil {
		return AuthorityStatus{}, fmt.Errorf("secret %s, %w", client.ObjectKeyFromObject(secret), err)
	}
	var machines v1alpha1.MachineList
	if err := c.List(ctx, &machines); err != nil {
		return AuthorityStatus{}, fmt.Errorf("list machines: %w", err)
	}
	s := AuthorityStatus{Authorities: []AuthorityInfo{infoOf(shown)}}
	s.Authorities[0].Shown, s.Authorities[0].Signs = true, next == nil
	if next != nil {
		s.Authorities = append(s.Authorities, infoOf(next))
		s.Authorities[1].Signs = true
	}
	for i := range machines.Items {
		s.count(&machines.Items[i])
		s.names = append(s.names, machines.Items[i].Name)
	}
	slices.SortFunc(s.Behind, func(a, b MachineBehind) int { return strings.Compare(a.Machine, b.Machine) })
	slices.Sort(s.Strangers)
	return s, nil
}

func infoOf(ca *southbound.CA) AuthorityInfo {
	return AuthorityInfo{Pin: ca.Pin(), Since: ca.Since().UTC(), Until: ca.Until().UTC()}
}

// count takes a Machine in; one without keys has never joined.
func (s *AuthorityStatus) count(m *v1alpha1.Machine) {
	if len(keysOf(m)) == 0 {
		return
	}
	pin := m.Annotations[authorityAnnotation]
	if pin == "" {
		pin = s.Authorities[0].Pin
	}
	at := slices.IndexFunc(s.Authorities, func(a AuthorityInfo) bool { return a.Pin == pin })
	if at < 0 {
		s.Strangers = append(s.Strangers, m.Name)
		return
	}
	s.Authorities[at].Machines++
	if at == 0 && len(s.Authorities) > 1 {
		s.Behind = append(s.Behind, MachineBehind{Machine: m.Name, Away: awaySince(m)})
	}
}

// awaySince is when a machine was last seen to be away; zero when it is not.
func awaySince(m *v1alpha1.Machine) time.Time {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MachineReady)
	if c != nil && c.Status != metav1.ConditionTrue && (c.Reason == v1alpha1.MachineReasonLost || c.Reason == v1alpha1.MachineReasonNeverSeen) {
		return c.LastTransitionTime.UTC()
	}
	return time.Time{}
}

// Rotating says whether a rotation is under way.
func (s AuthorityStatus) Rotating() bool { return len(s.Authorities) > 1 }

// expired says whether the certificate of a machine that is behind is good no more: since the rotation
// began none was signed like it. Of a machine that is not away that cannot be: then a clock is wrong.
func (s AuthorityStatus) expired(m MachineBehind, now time.Time) bool {
	return !m.Away.IsZero() && now.Sub(s.Authorities[1].Since) > southbound.MachineLife
}

// RotateAuthority begins a rotation: it makes an authority that signs what machines get from now on,
// and is trusted beside the one by which planes are known. It refuses while a rotation is under
// way; of several that are begun at once, one is. It returns the pin of the new authority.
func RotateAuthority(ctx context.Context, c client.Client, now func() time.Time) (string, error) {
	secret, err := authoritySecret(ctx, c)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("rotate the agents' authority: there is none yet: %w", err)
	} else if err != nil {
		return "", err
	}
	_, next, err := parseAuthorities(secret.Data, now)
	switch {
	case err != nil:
		return "", fmt.Errorf("secret %s, %w", client.ObjectKeyFromObject(secret), err)
	case next != nil:
		return "", fmt.Errorf("rotate the agents' authority: a rotation is under way since %s", next.Since().UTC().Format(time.RFC3339))
	}
	if secret.Data[nextField], err = newAuthority(now); err != nil {
		return "", err
	}
	if err := updateAuthority(ctx, c, secret); err != nil {
		return "", err
	}
	if next, err = southbound.ParseCA(secret.Data[nextField], now); err != nil {
		return "", err
	}
	return next.Pin(), nil
}

// Retirement is what the end of a rotation came to.
type Retirement struct {
	Pin string // of the authority that was retired
	// Left are machines that keep a certificate of it.
	Left []string
	// Tokens carried its pin and were not used: they are revoked.
	Tokens []TokenInfo
}

// BehindError names machines that have not renewed their certificate since a rotation began.
type BehindError struct{ Machines []string }

func (e BehindError) Error() string {
	return "these machines have not renewed their certificate, and would have to join again: " + strings.Join(e.Machines, ", ")
}

// RetireAuthority ends a rotation: planes are known by the next authority, and only that is trusted.
// It refuses, with a BehindError, while machines keep certificates of the retired one that are good and
// that are not named in without, and where no Machine has a name in without. With an error after the retirement, the result says what was retired.
func RetireAuthority(ctx context.Context, c client.Client, now func() time.Time, without []string) (Retirement, error) {
	secret, err := authoritySecret(ctx, c)
	if err != nil {
		return Retirement{}, err
	}
	s, err := authorityStatus(ctx, c, secret, now)
	if err != nil {
		return Retirement{}, err
	}
	if !s.Rotating() {
		return Retirement{}, errors.New("retire the agents' authority: no rotation is under way")
	}
	if err := s.missing(without); err != nil {
		return Retirement{}, err
	}
	r := Retirement{Pin: s.Authorities[0].Pin}
	var lost []string
	for _, m := range s.Behind {
		if r.Left = append(r.Left, m.Machine); !slices.Contains(without, m.Machine) && !s.expired(m, now()) {
			lost = append(lost, m.Machine)
		}
	}
	if len(lost) > 0 {
		return Retirement{}, fmt.Errorf("retire the agents' authority: %w", BehindError{lost})
	}
	// Said before it is so: a Machine without a word counts for the authority that is left.
	for _, name := range r.Left {
		if _, err := noteAuthority(ctx, c, name, r.Pin); err != nil {
			return Retirement{}, err
		}
	}
	secret.Data[authorityField] = secret.Data[nextField]
	delete(secret.Data, nextField)
	if err := updateAuthority(ctx, c, secret); err != nil {
		return Retirement{}, err
	}
	if r.Tokens, err = revokeTokens(ctx, c, now()); err != nil {
		return r, fmt.Errorf("the authority is retired, but tokens that carry its pin stay, and can be used by whoever ignores the pin: revoke them (fairlead token list): %w", err)
	}
	return r, nil
}

// missing names those that no Machine has: a slip of the pen would leave behind nobody, or another than was meant.
func (s AuthorityStatus) missing(names []string) error {
	var errs []error
	for _, name := range names {
		if !slices.Contains(s.names, name) {
			errs = append(errs, fmt.Errorf("retire the agents' authority: no Machine has the name %s%s", strconv.Quote(name), near.DidYouMean(name, s.names)))
		}
	}
	return errors.Join(errs...)
}

// updateAuthority writes the Secret, if nobody else has written it since it was read.
func updateAuthority(ctx context.Context, c client.Client, secret *corev1.Secret) error {
	err := c.Update(ctx, secret)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("the agents' authorities were changed at the same time; nothing was changed here: %w", err)
	}
	if err != nil {
		return fmt.Errorf("store the agents' authorities in secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}
