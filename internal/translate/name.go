package translate

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"fairlead.dev/internal/model"
)

// Labels that Kubernetes sets.
const (
	labelServiceName   = "kubernetes.io/service-name"
	labelNamespaceName = "kubernetes.io/metadata.name"
)

const listenerPrefix = "http-"

// ListenerID is the listener that every Gateway and root IngressRoute shares at a port.
func ListenerID(port uint16) model.ListenerID {
	return model.ListenerID(listenerPrefix + strconv.Itoa(int(port)))
}

// portOf is the port in a listener's ID.
func portOf(id model.ListenerID) uint16 {
	_, rest, _ := strings.Cut(string(id), "-")
	text, _, _ := strings.Cut(rest, "_")
	port, _ := strconv.ParseUint(text, 10, 16)
	return uint16(port)
}

// protocolOf is what clients speak at a listener.
func protocolOf(id model.ListenerID) model.Protocol {
	if isTLS(id) {
		return model.ProtocolHTTPS
	}
	return model.ProtocolHTTP
}

// anyHost is the host of a virtual host that takes what no other takes.
const anyHost = "*"

// hostProblem says why a lower-case name cannot be a host, or nothing: RFC 1123
// labels, 253 bytes in all. A leading "*." is taken where wildcard is set.
func hostProblem(host string, wildcard bool) string {
	rest := host
	if strings.Contains(host, "*") {
		suffix, isWildcard := strings.CutPrefix(host, "*.")
		switch {
		case !wildcard:
			return quote(host) + " cannot use wildcards"
		case !isWildcard || strings.Contains(suffix, "*"):
			return quote(host) + ": a wildcard must be the whole first label"
		}
		rest = suffix
	}
	if rest == "" {
		return "a host name must be specified"
	}
	if strings.Contains(rest, ":") {
		return quote(host) + " must be a host name without a port"
	}
	if len(rest) > 253 {
		return quote(host[:32]+"...") + " is longer than 253 characters"
	}
	for label := range strings.SplitSeq(rest, ".") {
		if !isLabel(label) {
			return quote(host) + " is no DNS name: labels are 1 to 63 letters, digits and inner hyphens, separated by dots"
		}
	}
	return ""
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// intersect returns the host that both a listener and a route take, each a name,
// a wildcard, or anyHost.
func intersect(listener, route string) (string, bool) {
	switch {
	case listener == route || route == anyHost:
		return listener, true
	case listener == anyHost || covers(listener, route):
		return route, true
	case covers(route, listener):
		return listener, true
	}
	return "", false
}

// covers reports whether every request for host is one for pattern.
func covers(pattern, host string) bool {
	if pattern == anyHost || pattern == host {
		return true
	}
	suffix, isWildcard := strings.CutPrefix(pattern, "*")
	return isWildcard && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// pathLimit bounds paths, as the Gateway API does.
const pathLimit = 1024

// pathProblem says why a text cannot be a path or the start of one, or nothing.
func pathProblem(path string) string {
	switch {
	case !strings.HasPrefix(path, "/"):
		return quote(path) + ` must begin with "/"`
	case len(path) > pathLimit:
		return quote(path[:32]+"...") + " is longer than " + strconv.Itoa(pathLimit) + " characters"
	case !printable(path):
		return quote(path) + " must not have spaces or control characters"
	case strings.ContainsAny(path, "?#"):
		return quote(path) + ` must not have a "?" or "#"`
	}
	return ""
}

// printable reports whether a text is valid UTF-8 without spaces and control characters.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7F {
			return false
		}
	}
	return true
}

// isToken reports whether a text is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// quote puts a user's text into a message, cut where it is long.
func quote(s string) string {
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	return strconv.Quote(s)
}

// at is a field's path with an index.
func at(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
