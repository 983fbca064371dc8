package explain

import (
	"strings"

	"fairlead.dev/internal/model"
)

// slashes is the path as Envoy takes slashes in it, before and after it resolves dots. escaped says that
// there were escaped ones; ok is false for a path that Envoy refuses.
func slashes(path string, l *model.Listener) (normal string, escaped, ok bool) {
	if l.EscapedSlashes() != model.SlashesKeep {
		plain := unescapeSlashes.Replace(path)
		path, escaped = plain, plain != path
	}
	if path, ok = normalise(path); l.Clients == nil || !l.Clients.KeepSlashes {
		path = merge(path)
	}
	return path, escaped, ok
}

var unescapeSlashes = strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", `\`, "%5c", `\`)

// merge has one slash where there are several. Of a path of nothing else Envoy keeps two.
func merge(path string) string {
	if len(path) > 1 && strings.Trim(path, "/") == "" {
		return "//"
	}
	out := make([]byte, 0, len(path))
	for i := range len(path) {
		if path[i] != '/' || len(out) == 0 || out[len(out)-1] != '/' {
			out = append(out, path[i])
		}
	}
	return string(out)
}

// normalise is the path as Envoy routes it with normalize_path: dot segments are resolved
// (RFC 3986, section 5.2.4), "\" is "/", escaped letters, digits and "-._~" are taken as
// themselves, what else is escaped stays so. ok is false for a path
// that Envoy refuses: one with an escaped null. path begins with "/" and is escaped.
func normalise(path string) (normal string, ok bool) {
	ok = true
	out := make([]byte, 0, len(path))
	for i := 0; i < len(path); {
		if n := dotAt(path, i); n > 0 {
			i += n
			if len(out) == 0 || out[len(out)-1] != '/' {
				out = append(out, '.')
				continue
			}
			var kind dotKind
			kind, n = afterDot(path, i)
			i += n
			switch kind {
			case dotFile:
				out = append(out, '.')
			case dotHere:
			case dotUp:
				if cut := strings.LastIndexByte(string(out[:len(out)-1]), '/'); cut >= 0 {
					out = out[:cut+1]
				}
			}
			continue
		}
		c := path[i]
		value, escaped := unescape(path, i)
		switch {
		case escaped && unreserved(value):
			out = append(out, value)
			i += 3
		case escaped:
			ok = ok && value != 0
			out = append(out, path[i:i+3]...)
			i += 3
		case c == '\\':
			out = append(out, '/')
			i++
		default:
			out = append(out, c)
			i++
		}
	}
	return string(out), ok
}

// dotKind is what a dot after a slash means.
type dotKind uint8

const (
	dotFile dotKind = iota // the beginning of a name
	dotHere                // "."
	dotUp                  // ".."
)

// afterDot looks at what follows a dot, and says how much of it belongs to the segment.
func afterDot(path string, i int) (kind dotKind, n int) {
	switch {
	case i == len(path):
		return dotHere, 0
	case isSlash(path[i]):
		return dotHere, 1
	}
	second := dotAt(path, i)
	switch {
	case second == 0:
		return dotFile, 0
	case i+second == len(path):
		return dotUp, second
	case isSlash(path[i+second]):
		return dotUp, second + 1
	}
	return dotFile, 0
}

// dotAt is the length of a dot at i, plain or escaped, 0 when there is none.
func dotAt(path string, i int) int {
	if i < len(path) && path[i] == '.' {
		return 1
	}
	if value, escaped := unescape(path, i); escaped && value == '.' {
		return 3
	}
	return 0
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// unescape reads "%41" at i.
func unescape(path string, i int) (value byte, ok bool) {
	if i+2 >= len(path) || path[i] != '%' {
		return 0, false
	}
	high, okHigh := hexDigit(path[i+1])
	low, okLow := hexDigit(path[i+2])
	return high<<4 | low, okHigh && okLow
}

func hexDigit(c byte) (value byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
