package field

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
)

var (
	// hiddenSlash is a slash or backslash that is escaped (RFC 3986, section 2.1).
	hiddenSlash = regexp.MustCompile(`(?i)%(2F|5C)`)
	// hiddenLetter is an escaped character that means the same without the escape (RFC 3986, section 2.3).
	hiddenLetter = regexp.MustCompile(`(?i)%(2D|2E|5F|7E|3[0-9]|[46][1-9A-F]|[57][0-9A])`)
	// dotSegment is a segment that is resolved (RFC 3986, section 5.2.4), and dotEnd one at the end.
	dotSegment = regexp.MustCompile(`(?i)/(\.|%2E){1,2}/`)
	dotEnd     = regexp.MustCompile(`(?i)/(\.|%2E){1,2}$`)
)

// SlashedPath is a path of a match that no request has as it stands there, and the field that says it.
type SlashedPath struct {
	field, Path string
	// escaped and doubled say that it has escaped slashes and slashes in a row, which a listener can keep; resolved
	// that it has something which no listener keeps: dot segments, backslashes, escaped letters.
	escaped, doubled, resolved bool
}

// Slashed looks for what a request's path does not have any more when routes are looked for.
func Slashed(field string, m model.PathMatch) (s SlashedPath, is bool) {
	if !strings.ContainsAny(m.Value, `%\.`) && !strings.Contains(m.Value, "//") {
		return SlashedPath{}, false // nearly always
	}
	s = SlashedPath{
		field: field, Path: m.Value,
		escaped: hiddenSlash.MatchString(m.Value),
		// Of a path of slashes alone Envoy keeps two.
		doubled: strings.Contains(m.Value, "//") && m.Value != "//",
		// A prefix of text that ends in "/." takes "/.well-known".
		resolved: strings.Contains(m.Value, `\`) || hiddenLetter.MatchString(m.Value) || dotSegment.MatchString(m.Value) ||
			m.Kind != model.PathPrefix && dotEnd.MatchString(m.Value),
	}
	return s, s.escaped || s.doubled || s.resolved
}

// plain is the path that requests have in its place.
func (s SlashedPath) plain() string {
	text := hiddenSlash.ReplaceAllString(strings.ReplaceAll(s.Path, `\`, "/"), "/")
	text = hiddenLetter.ReplaceAllStringFunc(text, func(escape string) string {
		letter, _ := strconv.ParseUint(escape[1:], 16, 8)
		return string(rune(letter))
	})
	clean := path.Clean(text)
	if clean != "/" && (strings.HasSuffix(text, "/") || dotEnd.MatchString(text)) {
		clean += "/"
	}
	return clean
}

// Note says that no request takes the match, and what to write.
func (s SlashedPath) Note(keepsEscaped bool) string {
	reason, keep := "escaped slashes are", ", or keep them with spec.path.escapedSlashesAction of a ClientPolicy"
	switch {
	case s.resolved:
		reason, keep = "dot segments, backslashes and escaped letters are", ""
	case !s.escaped || keepsEscaped:
		reason, keep = "adjacent slashes are", ", or keep them with spec.path.disableMergeSlashes of a ClientPolicy"
	}
	return s.field + ": " + Quote(s.Path) + " never matches, because " + reason + " normalised before routing: write " + Quote(s.plain()) + keep
}

// TakenAt says that requests have the path at a listener.
func (s SlashedPath) TakenAt(l *model.Listener) bool {
	keepsDoubled := l.Clients != nil && l.Clients.KeepSlashes
	return !s.resolved && (!s.escaped || l.EscapedSlashes() == model.SlashesKeep) && (!s.doubled || keepsDoubled)
}
