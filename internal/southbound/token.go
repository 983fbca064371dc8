package southbound

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// tokenForm begins every printed token and names its layout.
const tokenForm = "fl1"

// ErrToken is the class of tokens that are wrong, used or expired. The owner of the
// tokens wraps it with which of these it is.
var ErrToken = errors.New("token refused")

// ErrAway is the class of tokens that cannot be verified at the moment.
var ErrAway = errors.New("the token cannot be looked up")

// Token lets one machine join once. Formatted or logged it shows its ID only.
type Token struct {
	// ID identifies the stored token. It is no secret, and valid as the name of a Kubernetes
	// resource.
	ID     string
	secret string
}

var (
	tokenID     = regexp.MustCompile(`^[a-z0-9]{10}$`)
	tokenSecret = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
)

// NewToken generates a token from a source of randomness: 256 bits, so that a plain hash
// of it can be stored.
func NewToken(random io.Reader) (Token, error) {
	var bits [6 + 32]byte
	if _, err := io.ReadFull(random, bits[:]); err != nil {
		return Token{}, fmt.Errorf("generate a token: %w", err)
	}
	id := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(bits[:6])
	return Token{
		ID:     strings.ToLower(id[:10]),
		secret: base64.RawURLEncoding.EncodeToString(bits[6:]),
	}, nil
}

// ParseToken reads "<id>.<secret>", with or without the form in front and the pin
// behind, as an agent may send any of these.
func ParseToken(s string) (Token, error) {
	s, printed := strings.CutPrefix(strings.TrimSpace(s), tokenForm+".")
	parts := strings.Split(s, ".")
	if len(parts) != 2 && (!printed || len(parts) != 3) {
		return Token{}, fmt.Errorf("%w: want %s.<id>.<secret>.<pin>", ErrToken, tokenForm)
	}
	if !tokenID.MatchString(parts[0]) || !tokenSecret.MatchString(parts[1]) {
		return Token{}, fmt.Errorf("%w: it is not a join token of Fairlead; was it cut off?", ErrToken)
	}
	return Token{ID: parts[0], secret: parts[1]}, nil
}

// Print returns the printed form, with the pin of the authority that the agent is to
// trust. Only Print and Reveal return the secret.
func (t Token) Print(pin string) string {
	return tokenForm + "." + t.Reveal() + "." + pin
}

// Reveal gives "<id>.<secret>".
func (t Token) Reveal() string { return t.ID + "." + t.secret }

// Hash is what may be stored.
func (t Token) Hash() string {
	sum := sha256.Sum256([]byte(t.Reveal()))
	return hex.EncodeToString(sum[:])
}

// Matches compares with a stored Hash, in constant time.
func (t Token) Matches(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Hash()), []byte(hash)) == 1
}

// String hides the secret.
func (t Token) String() string { return t.ID + ".***" }

// GoString hides the secret from %#v.
func (t Token) GoString() string { return t.String() }

// LogValue hides the secret from structured logs.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }
