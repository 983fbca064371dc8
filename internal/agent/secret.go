package agent

import (
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"fairlead.dev/internal/delta"
)

// isPrivate says whether a change is of something that must not be on the disk. The
// certificates of authorities may; a removal is of both kinds.
func isPrivate(c delta.Change) (private, public bool) {
	switch {
	case c.Type == typePassword:
		return true, false
	case c.Type != typeSecret:
		return false, true
	case c.Resource == nil:
		return true, true
	case c.Resource.Body == nil: // stands for what was said before, wherever that is
		return true, true
	}
	var s tlsv3.Secret
	if err := unmarshal(c.Resource, &s); err != nil || s.GetValidationContext() == nil {
		return true, false
	}
	return false, true
}
