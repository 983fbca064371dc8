package model

import "strings"

// Proxies know a request that goes round in circles by this header (RFC 8586).
const (
	// LoopHeader is where each notes its LoopName.
	LoopHeader = "cdn-loop"
	LoopName   = "fairlead"
	// MaxTurns is how many edges one request may pass.
	MaxTurns = 3
)

// Turns is how many edges a request has passed, by the values of its LoopHeader: how often
// LoopName stands there as a word.
func Turns(values []string) int {
	turns := 0
	for _, value := range values {
		for word := range strings.FieldsFuncSeq(value, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
		}) {
			if word == LoopName {
				turns++
			}
		}
	}
	return turns
}
