package cloud

import "sync/atomic"

// Counters count what the requests to an upstream cost. Any goroutine may read them.
type Counters struct {
	// Requests by the first digit of the answer's status; Requests[0] had no answer.
	Requests [6]atomic.Uint64
	// Nanoseconds from sending the requests until the headers of their answers.
	Nanoseconds atomic.Uint64
	// Bytes of the answers, after decompression.
	Bytes atomic.Uint64
	// Held counts requests that waited because the API had asked for fewer (Retry-After).
	Held atomic.Uint64
}
