package explain

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
)

// mismatch says why a match does not take the request, or nothing when it does. path says
// whether the path alone would do.
func mismatch(m model.Match, s seen) (why string, path bool) {
	if why := pathMismatch(m.Path, s.path); why != "" {
		return why, false
	}
	if m.Method != "" && m.Method != s.method {
		return "the method is " + s.method + ", not " + m.Method, true
	}
	for _, h := range m.Headers {
		if why := valueMismatch("header", h, s.headers[h.Name]); why != "" {
			return why, true
		}
	}
	for _, q := range m.Query {
		if why := valueMismatch("query parameter", q, parameter(s.query, q.Name)); why != "" {
			return why, true
		}
	}
	return "", true
}

func pathMismatch(m model.PathMatch, path string) string {
	switch m.Kind {
	case model.PathExact:
		if path != m.Value {
			return "the path is not " + m.Value
		}
	case model.PathRegex:
		if !fullMatch(m.Value, path) {
			return "the whole path does not match the expression " + m.Value
		}
	case model.PathPrefix:
		if !strings.HasPrefix(path, m.Value) {
			return "the path does not begin with " + m.Value
		}
	case model.PathSegments:
		prefix := strings.TrimRight(m.Value, "/")
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok || prefix != "" && rest != "" && rest[0] != '/' {
			return "the path is neither " + prefix + " nor below it"
		}
	}
	return ""
}

// valueMismatch wants one of the values to match.
func valueMismatch(what string, m model.ValueMatch, values []string) string {
	if len(values) == 0 {
		return "the " + what + " " + m.Name + " is missing"
	}
	for _, value := range values {
		if m.Regex && fullMatch(m.Value, value) || !m.Regex && value == m.Value {
			return ""
		}
	}
	said := "the " + what + " " + m.Name + " is " + quote(strings.Join(values, ", "))
	if m.Regex {
		return said + ", which does not match " + m.Value
	}
	return said + ", not " + quote(m.Value)
}

// fullMatch matches a whole text by an RE2 expression. One that does not compile, which no
// translation lets pass, matches nothing.
func fullMatch(expression, text string) bool {
	re, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	return err == nil && re.MatchString(text)
}

// parameter is the first value of a query parameter, none when it is missing. Names and
// values are compared as they are sent: nothing is unescaped.
func parameter(query, name string) []string {
	for query != "" {
		var one string
		one, query, _ = strings.Cut(query, "&")
		if key, value, _ := strings.Cut(one, "="); key == name {
			return []string{value}
		}
	}
	return nil
}

// matchText is a match in words.
func matchText(m model.Match) string {
	var parts []string
	switch m.Path.Kind {
	case model.PathExact:
		parts = append(parts, "path "+m.Path.Value)
	case model.PathRegex:
		parts = append(parts, "path matching "+m.Path.Value)
	case model.PathPrefix:
		parts = append(parts, "path "+m.Path.Value+"*")
	default:
		if prefix := strings.TrimRight(m.Path.Value, "/"); prefix == "" {
			parts = append(parts, "any path")
		} else {
			parts = append(parts, "path "+prefix+" and below")
		}
	}
	if m.Method != "" {
		parts = append(parts, "method "+m.Method)
	}
	for _, v := range m.Headers {
		parts = append(parts, "header "+valueText(v))
	}
	for _, v := range m.Query {
		parts = append(parts, "query "+valueText(v))
	}
	return strings.Join(parts, ", ")
}

func valueText(v model.ValueMatch) string {
	if v.Regex {
		return v.Name + " matching " + v.Value
	}
	return v.Name + "=" + quote(v.Value)
}

// quote puts a user's text into a sentence, cut where it is long.
func quote(s string) string {
	if len(s) > 100 {
		s = s[:100] + "..."
	}
	return strconv.Quote(s)
}

// rewritten is the path that a backend sees, without the query: the matched part replaced
// without doubling or swallowing the slash after it.
func rewritten(m model.PathMatch, r *model.PathRewrite, path string) string {
	if r == nil || r.Value == "" && m.Kind == model.PathPrefix {
		return path
	}
	to := r.Value
	if r.Kind == model.RewriteFull {
		return cmp.Or(to, "/")
	}
	switch m.Kind {
	case model.PathExact, model.PathRegex:
		return cmp.Or(to, "/")
	case model.PathSegments:
		from := strings.TrimRight(m.Value, "/")
		to = strings.TrimRight(to, "/")
		switch {
		case from == "":
			return to + "/" + strings.TrimPrefix(path, "/")
		case to == "":
			return "/" + strings.TrimPrefix(strings.TrimPrefix(path, from), "/")
		}
		return to + strings.TrimPrefix(path, from)
	default:
		rest := strings.TrimPrefix(path, m.Value)
		if strings.HasSuffix(to, "/") && !strings.HasSuffix(m.Value, "/") {
			rest = strings.TrimPrefix(rest, "/")
		}
		return to + rest
	}
}
