package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

const (
	// eventStream is the type of an answer that goes on, and lastEvent the header by which a reader says how far it has
	// read one.
	eventStream = "text/event-stream"
	lastEvent   = "Last-Event-ID"
	// maxStreams is how many streams are open at once.
	maxStreams = 200
	// streamTime is how long the reader of a stream may take for a piece.
	streamTime = 5 * time.Second
	// quietTime is after how long without a change a stream says that it goes on.
	quietTime = 10 * time.Second
)

// Position is how far somebody has read a stream: its number of changes, since a plane leads in an epoch, and the revision that was
// published by then.
type Position struct{ Epoch, Revision, Change uint64 }

// String is the position as an event's ID.
func (p Position) String() string { return fmt.Sprintf("%d.%d.%d", p.Epoch, p.Revision, p.Change) }

// parsePosition reads an event's ID; nil: there is none, or it is of something else.
func parsePosition(text string) *Position {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil
	}
	var p Position
	for i, to := range []*uint64{&p.Epoch, &p.Revision, &p.Change} {
		n, err := strconv.ParseUint(parts[i], 10, 64)
		if err != nil {
			return nil
		}
		*to = n
	}
	return &p
}

// Update is what has changed in a list that somebody watches.
type Update struct {
	At Position
	// Reset says that Blocks are the whole list.
	Reset  bool
	Blocks []Block
}

// Block is a part of a list. Without rows it is gone.
type Block struct {
	Key  string `json:"key"`
	Rows any    `json:"rows"`
}

// Watch waits for what has changed in a list since a position; nil: since there was nothing.
type Watch func(ctx context.Context, after *Position, namespace string) (Update, error)

// streamed answers questions for streams, and has the others answered by next.
func streamed(c Config, next http.Handler) http.Handler {
	slots, handlers := newSlots(c, kindStreams), map[string]http.HandlerFunc{}
	for _, p := range paths {
		if watch := c.Watches[p.at]; p.watched && watch != nil {
			handlers[p.at] = slots.now(led(c, streamOf(watch, c.Standby)))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream := handlers[r.URL.Path]
		switch {
		case !isWatched(r.URL.Query()) || r.Method != http.MethodGet:
			next.ServeHTTP(w, r)
			return
		case stream == nil:
			http.Error(w, "watch: what is at "+r.URL.Path+" is not watched", http.StatusBadRequest)
			return
		}
		stream(w, r)
	})
}

// streamOf answers by a stream of server-sent events while the plane leads.
func streamOf(watch Watch, standby func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if why := unfitForStreams(r); why != "" {
			http.Error(w, why, http.StatusBadRequest)
			return
		}
		out := newEvents(w)
		after := parsePosition(r.Header.Get(lastEvent))
		for r.Context().Err() == nil && (standby == nil || standby() == nil) {
			ctx, cancel := context.WithTimeout(r.Context(), quietTime)
			update, err := watch(ctx, after, r.URL.Query().Get("namespace"))
			quiet := ctx.Err() != nil
			cancel()
			switch {
			case err == nil:
				after = &update.At
				err = out.update(update)
			case quiet:
				err = out.quiet()
			case !out.began:
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
			if err != nil {
				return // the reader is gone, or begins again where it was
			}
		}
	}
}

// unfitForStreams says why a request cannot be answered by a stream.
func unfitForStreams(r *http.Request) string {
	for name := range r.URL.Query() {
		if name != "watch" && name != "namespace" {
			return name + ": a stream has watch and namespace only, and sends a list as a whole"
		}
	}
	return ""
}

// events writes server-sent events. Each piece has to be read in time.
type events struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	began bool
}

func newEvents(w http.ResponseWriter) *events {
	e := &events{w: w, c: http.NewResponseController(w)}
	_ = e.c.SetReadDeadline(time.Time{}) // that of the question would end the answer
	return e
}

// update writes an update. Its position comes last: who has read a part of it only, begins again before it.
func (e *events) update(u Update) error {
	if u.Reset {
		if err := e.send(v1.EventReset, "", struct{}{}); err != nil {
			return err
		}
	}
	for _, b := range u.Blocks {
		if err := e.send(v1.EventBlock, "", b); err != nil {
			return err
		}
	}
	if err := e.send(v1.EventCurrent, u.At.String(), v1.Current{Epoch: u.At.Epoch, Revision: u.At.Revision}); err != nil {
		return err
	}
	return e.flush()
}

// quiet says that the stream goes on.
func (e *events) quiet() error {
	if err := e.piece(": nothing has changed\n\n"); err != nil {
		return err
	}
	return e.flush()
}

// flush has the reader told what was sent.
func (e *events) flush() error {
	if err := e.c.Flush(); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}

// send sends an event. A name or an ID that is empty is left out.
func (e *events) send(name, id string, data any) error {
	body, err := json.Marshal(data) // has no line break
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	text := ""
	if name != "" {
		text += "event: " + name + "\n"
	}
	if id != "" {
		text += "id: " + id + "\n"
	}
	return e.piece(text + "data: " + string(body) + "\n\n")
}

func (e *events) piece(text string) error {
	if !e.began {
		e.began = true
		e.w.Header().Set("Content-Type", eventStream)
		e.w.Header().Set("Cache-Control", "no-store")
	}
	_ = e.c.SetWriteDeadline(time.Now().Add(streamTime))
	if _, err := io.WriteString(e.w, text); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}

// passOn sends a stream as it comes, until either end is gone.
func passOn(w http.ResponseWriter, from io.Reader) {
	c := http.NewResponseController(w)
	w.Header().Set("Content-Type", eventStream)
	w.WriteHeader(http.StatusOK)
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			_ = c.SetWriteDeadline(time.Now().Add(streamTime))
			if _, err := w.Write(piece[:n]); err != nil {
				return
			}
			_ = c.Flush()
		}
		if err != nil {
			return
		}
	}
}

// Event is one of a stream.
type Event struct {
	Name, ID string
	Data     []byte
}

// errTooLong ends a stream with an event that no plane sends.
var errTooLong = errors.New("an event is too long")

// Stream reads the events of a path, after the event with that ID, until it ends or each returns an error. A comment is an
// event without a name.
func (c Client) Stream(ctx context.Context, path, after string, each func(Event) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+path, nil)
	if err != nil {
		return fmt.Errorf("ask the console at %s: %w", c.URL, err)
	}
	if after != "" {
		request.Header.Set(lastEvent, after)
	}
	endless := *c.HTTP
	endless.Timeout = 0
	response, err := c.do(&endless, request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		_, err := c.read200(response, path)
		return err
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, v1.MaxAnswer)
	var e Event
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			e.Name = value
		case "id":
			e.ID = value
		case "data":
			e.Data = []byte(value)
		case "":
			if value == "" && lines.Text() != "" {
				continue
			}
			if err := each(e); err != nil {
				return err
			}
			e = Event{}
		}
	}
	err = lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = errTooLong
	}
	if err == nil {
		err = io.ErrUnexpectedEOF // a stream has no end of its own
	}
	return NoAnswerError{URL: c.URL, Err: err}
}
