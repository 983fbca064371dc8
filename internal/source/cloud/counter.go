package cloud

import (
	"sync/atomic"

	"fairlead.dev/internal/model"
)

// Counters count what the requests to an upstream cost. Any goroutine may read them.
type Counters struct {
	// Requests by the class of the answer's status; Requests[0] had no answer.
	Requests [model.StatusClasses]atomic.Uint64
	// Nanoseconds from sending the requests until the headers of their answers.
	Nanoseconds atomic.Uint64
	// Bytes of the answers, after decompression.
	Bytes atomic.Uint64
	// Throttled counts requests that waited because the API had asked for fewer (Retry-After).
	Throttled atomic.Uint64
}
