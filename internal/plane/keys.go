package plane

import (
	"strings"

	"fairlead.dev/api/v1alpha1"
)

// KeysAnnotation of a Machine lists the keys whose certificates are good for it:
// SHA-256 of the public key's DER form, hexadecimal, comma-separated, the newest
// first. Joining replaces them; renewing leaves the new one and the one that it was
// asked with. A Machine that is deleted takes
// them along: its certificates are refused until it joins anew.
const KeysAnnotation = "fairlead.dev/keys"

func keysOf(m *v1alpha1.Machine) []string {
	text := m.Annotations[KeysAnnotation]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
