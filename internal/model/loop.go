package model

// By these proxies know requests that go round in circles (RFC 8586).
const (
	// LoopHeader is where each notes its LoopName.
	LoopHeader = "cdn-loop"
	LoopName   = "fairlead"
	// MaxTurns is how many of them one request may come by.
	MaxTurns = 3
)
