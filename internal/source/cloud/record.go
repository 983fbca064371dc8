package cloud

import (
	"context"
	"sync/atomic"
)

// Record notes what happens to the requests of a context, for clients that keep errors to themselves or turn them into
// text.
type Record struct {
	last  atomic.Pointer[Error]
	bytes atomic.Int64
}

type recordKey struct{}

// WithRecord makes a context whose requests are noted.
func WithRecord(ctx context.Context) (context.Context, *Record) {
	r := &Record{}
	return context.WithValue(ctx, recordKey{}, r), r
}

// Err is the last error of a request, or of reading its answer; nil if there was none.
func (r *Record) Err() *Error { return r.last.Load() }

// Bytes is how much was read of the answers, after decompression.
func (r *Record) Bytes() int64 { return r.bytes.Load() }

func recordOf(ctx context.Context) *Record {
	if r, ok := ctx.Value(recordKey{}).(*Record); ok {
		return r
	}
	return &Record{}
}
