package translate

import (
	"strconv"

	"fairlead.dev/internal/model"
)

// floorNote says that a version of TLS that somebody asks for is not the one that holds, because the operator
// allows none so old; empty where it does.
func (c Config) floorNote(version model.TLSVersion) string {
	if version == "" || version >= c.MinTLS { // "1.0" to "1.3" are in order
		return ""
	}
	return quote(string(version)) + " counts as " + string(c.MinTLS) + ", the least that the plane allows (--minimum-tls-version)"
}

// insecureNote says that permitInsecure of routes has no effect; empty where none has it.
func (f *ingressFact) insecureNote() string {
	if len(f.insecure) == 0 {
		return ""
	}
	others := ""
	switch n := len(f.insecure) - 1; {
	case n == 1:
		others = " (and of 1 other route)"
	case n > 1:
		others = " (and of " + strconv.Itoa(n) + " other routes)"
	}
	return at("spec.routes", f.insecure[0]) + ".permitInsecure" + others +
		": has no effect, since the plane has --disable-permit-insecure: requests in clear text are sent to https"
}
