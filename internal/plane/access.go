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

// Where an API server keeps what Access is read from, below its own prefix.
const (
	storedMachines = "fairlead.dev/machines/"
	storedSecrets  = "secrets/" + Namespace + "/"
)

// AccessKeys are the prefixes of what ReadAccess wants to be given of a database.
func AccessKeys() []string { return []string{storedMachines, storedSecrets} }

// Access is who can connect to a plane that has a certain database.
type Access struct {
	keys      map[string][]string  // by machine, the newest first
	tokens    map[string]TokenInfo // that can be used, by ID
	authority map[string][]byte    // fields of the Secret; nil: there is none
	pins      []string             // of the authorities, that by which planes are known first
}

// ReadAccess reads the objects of a database, by key, as an API server has stored them.
func ReadAccess(stored map[string][]byte, now time.Time) (Access, error) {
	scheme, err := apisource.NewScheme()
	if err != nil {
		return Access{}, err
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	a := Access{keys: map[string][]string{}, tokens: map[string]TokenInfo{}}
	for key, value := range stored {
		switch {
		case strings.HasPrefix(key, storedMachines):
			m := &v1alpha1.Machine{}
			if err := json.Unmarshal(value, m); err != nil {
				return Access{}, fmt.Errorf("read %s: %w", key, err)
			}
			if keys := keysOf(m); len(keys) > 0 { // without one it has never joined
				a.keys[m.Name] = keys
			}
		case strings.HasPrefix(key, storedSecrets):
			o, _, err := decoder.Decode(value, nil, nil)
			if err != nil {
				return Access{}, fmt.Errorf("read %s: %w", key, err)
			}
			if secret, is := o.(*corev1.Secret); is {
				err = a.add(secret, now)
			}
			if err != nil {
				return Access{}, err
			}
		}
	}
	return a, nil
}

// add notes what a Secret says of access.
func (a *Access) add(secret *corev1.Secret, now time.Time) error {
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

// AccessChange is what becomes different for machines when one database takes the place of another.
type AccessChange struct {
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

// Replacing compares with the access that is replaced.
func (a Access) Replacing(present Access) AccessChange {
	var c AccessChange
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

// Under is the access with the authorities of another one: tokens that carry another pin let nobody in.
func (a Access) Under(other Access) Access {
	if !a.samePin(other) {
		a.tokens = nil
	}
	a.authority, a.pins = other.authority, other.pins
	return a
}

// samePin says whether planes are known by the same authority.
func (a Access) samePin(other Access) bool {
	return len(a.pins) > 0 && len(other.pins) > 0 && a.pins[0] == other.pins[0]
}

// Machines are those that can connect, by name.
func (a Access) Machines() []string { return slices.Sorted(maps.Keys(a.keys)) }

// Tokens are those that can be used, by ID.
func (a Access) Tokens() []TokenInfo {
	list := make([]TokenInfo, 0, len(a.tokens))
	for _, id := range slices.Sorted(maps.Keys(a.tokens)) {
		list = append(list, a.tokens[id])
	}
	return list
}
