package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
)

// authorityFile is what a restore leaves for the plane that starts on the restored database.
type authorityFile struct {
	Fields map[string][]byte `json:"fields"` // of the Secret
	// RevokeTokens: the tokens of the database carry the pin of another authority, and none of them
	// is good any more.
	RevokeTokens bool `json:"revokeTokens"`
}

func (f authorityFile) encode() ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode the agents' authorities: %w", err)
	}
	return text, nil
}

// NewAuthorityFile is a Config.AuthorityFile with an authority that was just made. No certificate and
// no token that there was before is good for a plane that takes it in.
func NewAuthorityFile(now time.Time) ([]byte, error) {
	data, err := newAuthority(func() time.Time { return now })
	if err != nil {
		return nil, err
	}
	return authorityFile{Fields: map[string][]byte{authorityField: data}, RevokeTokens: true}.encode()
}

// AuthorityFile is a Config.AuthorityFile with the authorities of one database, for a plane that starts
// on another.
func (a Credentials) AuthorityFile(other Credentials) ([]byte, error) {
	if a.authority == nil {
		return nil, errors.New("there is no authority of agents")
	}
	return authorityFile{Fields: a.authority, RevokeTokens: !a.samePin(other)}.encode()
}

// adoptAuthorities stores the authorities of the file in the place of what is stored, and removes
// it. Killed at any moment, it is done again.
func adoptAuthorities(ctx context.Context, c client.Client, file string, now func() time.Time, log *slog.Logger) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var f authorityFile
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil {
		_, _, err = parseAuthorities(f.Fields, now)
	}
	if err != nil {
		return unusableAuthority{fmt.Errorf("import the agents' authorities that a restore left in %s: %w; remove the file to continue with those of the backup", file, err)}
	}
	if _, err := loadAuthority(ctx, c, now, log); err != nil && !errors.As(err, new(unusableAuthority)) {
		return err // else there is a Secret, whatever it holds
	}
	if err := replaceAuthorities(ctx, c, f.Fields); err != nil {
		return err
	}
	if err := forgetNoted(ctx, c); err != nil {
		return err
	}
	if f.RevokeTokens {
		// Used ones, too: the key that used one may use it again.
		if _, err := dropTokens(ctx, c, now(), func(t TokenInfo) bool { return !t.Expired }); err != nil {
			return err
		}
	}
	if err := os.Remove(file); err != nil {
		return unusableAuthority{fmt.Errorf("remove the agents' authorities that a restore left, which are stored now: %w", err)}
	}
	log.Info("took in the agents' authorities that a restore left", "file", file, "tokens_revoked", f.RevokeTokens)
	return nil
}

// forgetNoted takes back what is written down of which authority machines keep a certificate: it was
// seen when the backup was made. A machine of which nothing is written holds up the next retirement.
func forgetNoted(ctx context.Context, c client.Client) error {
	var machines v1alpha1.MachineList
	if err := c.List(ctx, &machines); err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	for _, m := range machines.Items {
		if m.Annotations[authorityAnnotation] == "" {
			continue
		}
		if _, err := noteAuthority(ctx, c, m.Name, ""); err != nil {
			return err
		}
	}
	return nil
}

// replaceAuthorities stores the fields, unless they are stored already.
func replaceAuthorities(ctx context.Context, c client.Client, fields map[string][]byte) error {
	for {
		secret, err := authoritySecret(ctx, c)
		if err != nil {
			return err
		}
		if maps.EqualFunc(secret.Data, fields, func(a, b []byte) bool { return string(a) == string(b) }) {
			return nil
		}
		secret.Data = fields
		if err := updateAuthority(ctx, c, secret); !apierrors.IsConflict(err) {
			return err
		}
	}
}
