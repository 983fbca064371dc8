package cloud

import (
	"context"
	"sync/atomic"
)

type recordKey struct{}

// Record makes a context whose requests note their errors, for clients that keep errors to themselves or turn them
// into text. The function returns the last error of a request of that context, or of reading its answer; nil if there
// was none.
func Record(ctx context.Context) (context.Context, func() *Error) {
	var last atomic.Pointer[Error]
	return context.WithValue(ctx, recordKey{}, &last), last.Load
}

func record(ctx context.Context, err *Error) {
	if last, ok := ctx.Value(recordKey{}).(*atomic.Pointer[Error]); ok {
		last.Store(err)
	}
}
