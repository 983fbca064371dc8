package plane

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"fairlead.dev/api/v1alpha1"
	apisource "fairlead.dev/internal/source/api"
)

// Where an API server keeps what Credentials are read from, below its own prefix.
const (
	storedMachines = "fairlead.dev/machines/"
	storedSecrets  = "secrets/" + Namespace + "/"
)

// CredentialPrefixes are the prefixes of what ReadCredentials wants to be given of a database.
func CredentialPrefixes() []string { return []string{storedMachines, storedSecrets} }

// Credentials are those that a plane with a certain database accepts of machines.
type Credentials struct {
	keys      map[string][]string  // by machine, the newest first
	tokens    map[string]TokenInfo // that can be used, by ID
	authority map[string][]byte    // fields of the Secret; nil: there is none
	pins      []string             // of the authorities, that by which planes are known first
}

// ReadCredentials reads the objects of a database, by key, as an API server has stored them.
func ReadCredentials(stored map[string][]byte, now time.Time) (Credentials, error) {
	scheme, err := apisource.NewScheme()
	if err != nil {
		return Credentials{}, err
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	a := Credentials{keys: map[string][]string{}, tokens: map[string]TokenInfo{}}
	for key, value := range stored {
		switch {
		case strings.HasPrefix(key, storedMachines):
			m := &v1alpha1.Machine{}
			if err := json.Unmarshal(value, m); err != nil {
				return Credentials{}, fmt.Errorf("read %s: %w", key, err)
			}
			if keys := keysOf(m); len(keys) > 0 { // without one it has never joined
				a.keys[m.Name] = keys
			}
		case strings.HasPrefix(key, storedSecrets):
			o, _, err := decoder.Decode(value, nil, nil)
			if err != nil {
				return Credentials{}, fmt.Errorf("read %s: %w", key, err)
			}
			if secret, is := o.(*corev1.Secret); is {
				err = a.add(secret, now)
			}
			if err != nil {
				return Credentials{}, err
			}
		}
	}
	return a, nil
}

// add notes the credentials that a Secret holds.
func (a *Credentials) add(secret *corev1.Secret, now time.Time) error {
	switch {
	case secret.Type == TokenSecretType:
		// An unreadable one lets nobody in.
		if info, err := tokenInfo(secret, now); err == nil && info.usable() {
			a.tokens[info.ID] = info
		}
	case secret.Name == AuthoritySecret:
		shown, next, err := parseAuthorities(secret.Data, func() time.Time { return now })
		if err != nil {
			return fmt.Errorf("secret %s, %w", secret.Name, err)
		}
		a.authority, a.pins = secret.Data, []string{shown.Pin()}
		if next != nil {
			a.pins = append(a.pins, next.Pin())
		}
	}
	return nil
}

// CredentialChange is what becomes different for machines when one database takes the place of another.
type CredentialChange struct {
	// Back are machines that the other does not have: since, they were deleted. Earlier are those of
	// which an earlier key is good again: since, they joined anew. Gone are those whose key is not
	// known: since, they joined; now they must join again.
	Back, Earlier, Gone []string
	// Tokens can be used again: since, they were used or revoked.
	Tokens []TokenInfo
	// Authority says that not the same authorities are trusted: machines that have renewed their
	// certificate since do not take the plane for theirs, or are not taken. Retired says that one is
	// trusted that was retired since.
	Authority, Retired bool
}

// Replacing compares with the credentials that are replaced.
func (a Credentials) Replacing(present Credentials) CredentialChange {
	var c CredentialChange
	for _, name := range slices.Sorted(maps.Keys(a.keys)) {
		switch now := present.keys[name]; {
		case len(now) == 0:
			c.Back = append(c.Back, name)
		case slices.ContainsFunc(a.keys[name], func(key string) bool { return !slices.Contains(now, key) }):
			c.Earlier = append(c.Earlier, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(present.keys)) {
		if !slices.Contains(a.keys[name], present.keys[name][0]) {
			c.Gone = append(c.Gone, name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.tokens)) {
		if _, there := present.tokens[id]; !there {
			c.Tokens = append(c.Tokens, a.tokens[id])
		}
	}
	lacks := func(of, pins []string) bool {
		return slices.ContainsFunc(pins, func(pin string) bool { return !slices.Contains(of, pin) })
	}
	c.Retired = lacks(present.pins, a.pins)
	c.Authority = c.Retired || lacks(a.pins, present.pins)
	return c
}

// Under are the credentials with the authorities of others: tokens that carry another pin let nobody in.
func (a Credentials) Under(other Credentials) Credentials {
	if !a.samePin(other) {
		a.tokens = nil
	}
	a.authority, a.pins = other.authority, other.pins
	return a
}

// samePin says whether planes are known by the same authority.
func (a Credentials) samePin(other Credentials) bool {
	return len(a.pins) > 0 && len(other.pins) > 0 && a.pins[0] == other.pins[0]
}

// Machines are those that can connect, by name.
func (a Credentials) Machines() []string { return slices.Sorted(maps.Keys(a.keys)) }

// Tokens are those that can be used, by ID.
func (a Credentials) Tokens() []TokenInfo {
	list := make([]TokenInfo, 0, len(a.tokens))
	for _, id := range slices.Sorted(maps.Keys(a.tokens)) {
		list = append(list, a.tokens[id])
	}
	return list
}
