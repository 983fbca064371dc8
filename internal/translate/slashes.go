package translate

import (
	"regexp"

	"fairlead.dev/internal/model"
)

var (
	// hiddenSlash is a slash or backslash that is escaped (RFC 3986, section 2.1), and
	// slashes are those that come to one in a path.
	hiddenSlash = regexp.MustCompile(`(?i)%(2F|5C)`)
	slashes     = regexp.MustCompile(`(?i)(/|%2F|%5C)+`)
)

// slashedPath is a path of a match that has escaped slashes, and the field that says it.
type slashedPath struct{ field, path string }

// note says that no request takes the match where slashes do not stay escaped, and what to write.
func (s slashedPath) note() string {
	return s.field + ": " + quote(s.path) + " takes no request, since none has an escaped slash when routes are looked for: write " +
		quote(slashes.ReplaceAllString(s.path, "/")) + ", or keep escaped slashes with spec.path.escapedSlashesAction of a ClientPolicy"
}

// slashNotes are notes on paths of matches that take no request at any of these hosts' listeners.
func (r reader) slashNotes(paths []slashedPath, hosts []model.HostKey) []string {
	if len(paths) == 0 {
		return nil // nearly always: nothing is read
	}
	served := false
	for _, k := range hosts {
		r.t.graph.read(r.by, listenerNode(k.Listener))
		l := r.t.result.Listeners[k.Listener]
		if l == nil {
			continue
		}
		if l.EscapedSlashes() == model.SlashesKeep {
			return nil
		}
		served = true
	}
	if !served {
		return nil
	}
	notes := make([]string, len(paths))
	for i, p := range paths {
		notes[i] = p.note()
	}
	return notes
}
