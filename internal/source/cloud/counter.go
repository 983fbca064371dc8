package cloud

import "sync/atomic"

// Classes are the names of the classes of Counters.Requests.
var Classes = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// Counters count what the requests to an upstream cost. Any goroutine may read them.
type Counters struct {
	// Requests by the first digit of the answer's status; Requests[0] had no answer.
	Requests [len(Classes)]atomic.Uint64
	// Nanoseconds from sending the requests until the headers of their answers.
	Nanoseconds atomic.Uint64
	// Bytes of the answers, after decompression.
	Bytes atomic.Uint64
	// Throttled counts requests that waited because the API had asked for fewer (Retry-After).
	Throttled atomic.Uint64
}
