package field

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/snapshot"
)

// Labels that Kubernetes sets.
const (
	LabelServiceName   = "kubernetes.io/service-name"
	LabelNamespaceName = "kubernetes.io/metadata.name"
)

// AnyHost is the host of a virtual host that takes what no other takes.
const AnyHost = "*"

// HostProblem says why a lower-case name cannot be a host, or nothing: RFC 1123
// labels, 253 bytes in all. A leading "*." is taken where wildcard is set.
func HostProblem(host string, wildcard bool) string {
	rest := host
	if strings.Contains(host, "*") {
		suffix, isWildcard := strings.CutPrefix(host, "*.")
		switch {
		case !wildcard:
			return Quote(host) + " cannot use wildcards"
		case !isWildcard || strings.Contains(suffix, "*"):
			return Quote(host) + ": a wildcard must be the whole first label"
		}
		rest = suffix
	}
	if rest == "" {
		return "a host name must be specified"
	}
	if strings.Contains(rest, ":") {
		return Quote(host) + " must be a host name without a port"
	}
	if len(rest) > 253 {
		return Quote(host[:32]+"...") + " is longer than 253 characters"
	}
	for label := range strings.SplitSeq(rest, ".") {
		if !IsLabel(label) {
			return Quote(host) + " is not a valid DNS name: labels are 1 to 63 letters, digits and inner hyphens, separated by dots"
		}
	}
	return ""
}

// IsLabel reports whether s is a DNS label (RFC 1123): 1 to 63 letters in lower case, digits and inner hyphens.
func IsLabel(s string) bool {
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

// Intersect returns the host that both a listener and a route take, each a name,
// a wildcard, or AnyHost.
func Intersect(listener, route string) (string, bool) {
	switch {
	case listener == route || route == AnyHost:
		return listener, true
	case listener == AnyHost || covers(listener, route):
		return route, true
	case covers(route, listener):
		return listener, true
	}
	return "", false
}

// covers reports whether every request for host is one for pattern.
func covers(pattern, host string) bool {
	if pattern == AnyHost || pattern == host {
		return true
	}
	suffix, isWildcard := strings.CutPrefix(pattern, "*")
	return isWildcard && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// PathLimit bounds paths, as the Gateway API does.
const PathLimit = 1024

// PathProblem says why a text cannot be a path or the start of one, or nothing.
func PathProblem(path string) string {
	switch {
	case !strings.HasPrefix(path, "/"):
		return Quote(path) + ` must begin with "/"`
	case len(path) > PathLimit:
		return Quote(path[:32]+"...") + " is longer than " + strconv.Itoa(PathLimit) + " characters"
	case !Printable(path):
		return Quote(path) + " must not have spaces or control characters"
	case strings.ContainsAny(path, "?#"):
		return Quote(path) + ` must not have a "?" or "#"`
	}
	return ""
}

// Printable reports whether a text is valid UTF-8 without spaces and control characters.
func Printable(s string) bool {
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

// IsToken reports whether a text is a token of RFC 9110, section 5.6.2.
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// Quote puts a user's text into a message, cut where it is long.
func Quote(s string) string {
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	return strconv.Quote(s)
}

// At is a field's path with an index.
func At(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// KindText names a kind of a group.
func KindText(group, kind string) string {
	if group != "" {
		kind += "." + group
	}
	return Quote(kind)
}

// ListNames names the first few.
func ListNames(names []snapshot.Name) string {
	const most = 8
	var text []string
	for _, n := range names[:min(len(names), most)] {
		text = append(text, n.String())
	}
	if more := len(names) - most; more > 0 {
		text = append(text, strconv.Itoa(more)+" more")
	}
	return strings.Join(text, ", ")
}

// IsFieldValue reports whether a text can be a header's value (RFC 9110, 5.5).
func IsFieldValue(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F })
}

// DescribeSection says which listeners a parentRef names, for a message.
func DescribeSection(ref gatewayv1.ParentReference) string {
	text := ""
	if ref.SectionName != nil {
		text += " named " + string(*ref.SectionName)
	}
	if ref.Port != nil {
		text += " at port " + strconv.Itoa(int(*ref.Port))
	}
	return text
}

// ListTexts joins the first few.
func ListTexts(texts []string) string {
	const most = 8
	if more := len(texts) - most; more > 0 {
		texts = append(slices.Clone(texts[:most]), strconv.Itoa(more)+" more")
	}
	return strings.Join(texts, "; ")
}

// When returns the text if ok, else an empty one.
func When(ok bool, text string) string {
	if ok {
		return text
	}
	return ""
}

// Wider is the next pattern that covers all that a pattern does, in order of how much
// they say: "www.example.com", "*.example.com", "*.com", "*".
func Wider(pattern string) (string, bool) {
	if pattern == AnyHost {
		return "", false
	}
	_, suffix, more := strings.Cut(strings.TrimPrefix(pattern, "*."), ".")
	if !more {
		return AnyHost, true
	}
	return "*." + suffix, true
}
