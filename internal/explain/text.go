package explain

import "fairlead.dev/internal/model"

// MatchText says a match in words: "path /api and below, method GET".
func MatchText(m model.Match) string { return matchText(m) }
