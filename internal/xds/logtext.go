package xds

import (
	"fmt"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"

	"fairlead.dev/internal/model"
)

// unprintable are the characters that can change the look of a line beyond themselves: control characters, and those that
// begin a line or change the direction of text (Unicode's Bidi_Control). Bytes that are no UTF-8 are none of the others either.
const unprintable = `\x00-\x1f\x7f-\x{9f}\x{61c}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}`

// printable is an expression for a text of somebody else: cut after length characters, and before the first one that is unprintable.
func printable(text string, length int) string {
	short := fmt.Sprintf(`(size(%s) > %d ? %s.substring(0, %d) : %s)`, text, length, text, length, text)
	return fmt.Sprintf(`(%s.matches(r"^[^%s]*$") ? %s : re.extract(%s, r"^([^%s]*)", r"\1") + "...")`, text, unprintable, short, text, unprintable)
}

// inOneWord is an expression for a text that stands in a line without quotes: quotes and backslashes are escaped, and it is cut
// before the first character that is a space or none of ASCII.
func inOneWord(text string) string {
	escaped := func(text string) string { return text + `.replace("\\", "\\\\").replace("\"", "\\\"")` }
	return fmt.Sprintf(`(%s.matches(r"^[!#-\[\]-~]*$") ? %s : %s.matches("^[!-~]*$") ? %s : %s + "...")`, text, text, text, escaped(text),
		escaped(fmt.Sprintf(`re.extract(%s, "^([!-~]*)", r"\1")`, text)))
}

// textFields are the fields whose values others write, as they are written into lines of text: those that may have any
// character in quotes of their own, with escapes.
var textFields = map[string]string{
	"host":              computed(inOneWord(set(askedHost, "request.host"))),
	"path":              computed(inOneWord(set(askedPath, "request.path"))),
	"method":            computed(inOneWord("request.method")),
	"server_name":       computed(inOneWord("connection.requested_server_name")),
	"request_id":        computed(inOneWord("request.id")),
	"user_agent":        quoted(`request.headers["user-agent"]`),
	"client_subject":    quoted("connection.subject_peer_certificate"),
	"transport_failure": quoted("upstream.transport_failure_reason"),
	"owner":             computed("strings.quote(" + ownerOfName + ")"),
}

// set is an expression for what putAside remembers; without it, of what it remembers.
func set(key, otherwise string) string {
	return fmt.Sprintf(`(%q in filter_state ? string(filter_state[%q]) : %s)`, key, key, otherwise)
}

func quoted(text string) string {
	return computed("strings.quote(" + printable(text, textLength) + ")")
}

// templateLog writes lines of text to a file.
func templateLog(path string, parts []model.LogPart, decision string) *accesslogv3.AccessLog {
	var line strings.Builder
	for _, p := range parts {
		switch {
		case p.Request != "":
			line.WriteString(quoted(fmt.Sprintf("request.headers[%q]", p.Request)))
		case p.Response != "":
			line.WriteString(quoted(fmt.Sprintf("response.headers[%q]", p.Response)))
		case p.Field == "decision":
			line.WriteString(computed("strings.quote(" + decision + ")"))
		case p.Field != "":
			command, free := textFields[p.Field]
			if !free {
				command = accessFields[p.Field]
			}
			line.WriteString(command)
		default:
			line.WriteString(strings.ReplaceAll(p.Text, "%", "%%"))
		}
	}
	f := format(line.String() + "\n")
	f.Formatters = formatters()
	return toFile(path, f)
}
