package embedded

import "log/slog"

// causeOf is what two lines with one cause have in common. What else they say, of requests
// and how long these took, differs each time.
func causeOf(record slog.Record) string {
	cause := record.Message
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "err", "error", "reason", "method", "request-type":
			cause += " " + a.String()
		}
		return true
	})
	return cause
}
