package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

// Watched is what a stream has told since the position before.
type Watched struct {
	// ID is the position: a stream goes on after it.
	ID string
	v1.Current
	// Reset says that Blocks are the whole list.
	Reset  bool
	Blocks []WatchedBlock
}

// WatchedBlock is a part of a list. Without rows it is gone.
type WatchedBlock struct {
	Key  string            `json:"key"`
	Rows []json.RawMessage `json:"rows"`
}

// silentTime is after how long without a sign of life a stream counts as broken: planes give one each quietTime.
const silentTime = 3 * quietTime

var errSilent = errors.New("the plane is silent")

// Watch calls show with the list at a path and then with each change of it, or with the changes after a position, until the stream
// ends or show fails. A namespace may be empty.
func (c Client) Watch(ctx context.Context, path, namespace, after string, show func(Watched) error) error {
	return c.watch(ctx, path, namespace, after, silentTime, show)
}

func (c Client) watch(ctx context.Context, path, namespace, after string, silent time.Duration, show func(Watched) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silent, func() { cancel(errSilent) })
	defer timer.Stop()
	q := url.Values{"watch": {"true"}}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	var next Watched
	err := c.Stream(ctx, path+"?"+q.Encode(), after, func(e Event) error {
		timer.Reset(silent)
		var err error
		switch e.Name {
		case v1.EventReset:
			next = Watched{Reset: true}
		case v1.EventBlock:
			var b WatchedBlock
			if err = json.Unmarshal(e.Data, &b); err == nil {
				next.Blocks = append(next.Blocks, b)
			}
		case v1.EventCurrent:
			if err = json.Unmarshal(e.Data, &next.Current); err == nil {
				next.ID = e.ID
				told := next
				next = Watched{}
				return show(told)
			}
		}
		if err != nil {
			return fmt.Errorf("read a change from %s: %w", c.URL, err)
		}
		return nil
	})
	if errors.Is(context.Cause(ctx), errSilent) {
		return NoAnswerError{URL: c.URL, Err: errSilent}
	}
	return err
}
