package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

var errRead = errors.New("enough is read")

// read returns the next events of a stream, up to the next position.
func read(t *testing.T, c Client, path, after string, updates int) (events []Event) {
	t.Helper()
	err := c.Stream(t.Context(), path, after, func(e Event) error {
		events = append(events, e)
		if e.Name == v1.EventCurrent {
			if updates--; updates == 0 {
				return errRead
			}
		}
		return nil
	})
	if !errors.Is(err, errRead) {
		t.Fatalf("after %v: %v", events, err)
	}
	return events
}

// TestStreams: a stream begins with the whole, goes on with changes, and begins again where its reader was.
func TestStreams(t *testing.T) {
	asked := make(chan *Position, 8)
	watch := func(ctx context.Context, after *Position, namespace string) (Update, error) {
		asked <- after
		if namespace != "shop" {
			t.Errorf("namespace %q is watched", namespace)
		}
		switch {
		case after == nil:
			rows := []model.RouteRow{{Host: "a.test\n", Match: "prefix /"}}
			return Update{At: Position{3, 17, 1}, Reset: true, Blocks: []Block{{"k1", rows}, {"k2", rows}}}, nil
		case after.Change == 1:
			return Update{At: Position{3, 18, 2}, Blocks: []Block{{"k2", []model.RouteRow{}}}}, nil
		}
		<-ctx.Done()
		return Update{}, ctx.Err()
	}
	s := httptest.NewServer(Reads(Config{Watches: map[string]Watch{v1.RoutesPath: watch}}))
	defer s.Close()
	c := Client{URL: s.URL, HTTP: s.Client()}
	path := v1.RoutesPath + "?watch=true&namespace=shop"
	var names []string
	events := read(t, c, path, "", 2)
	for _, e := range events {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); got != "reset block block current block current" {
		t.Fatalf("the events are %s", got)
	}
	var b struct {
		Key  string
		Rows []v1.Route
	}
	if err := json.Unmarshal(events[1].Data, &b); err != nil || b.Key != "k1" || len(b.Rows) != 1 || b.Rows[0].Host != "a.test\n" {
		t.Errorf("the first block is %+v: %v", b, err)
	}
	if string(events[4].Data) != `{"key":"k2","rows":[]}` {
		t.Errorf("a block that is gone is told as %s", events[4].Data)
	}
	if id := events[3].ID; id != "3.17.1" || string(events[3].Data) != `{"epoch":3,"revision":17}` {
		t.Errorf("the position is %q, %s", id, events[3].Data)
	}
	for len(asked) > 0 {
		<-asked
	}
	if again := read(t, c, path, "3.17.1", 1); len(again) != 2 || again[0].Name != v1.EventBlock {
		t.Errorf("a reader that comes again is told %v", again)
	}
	if after := <-asked; after == nil || *after != (Position{3, 17, 1}) {
		t.Errorf("the list is asked for changes since %v", after)
	}
	for _, wrong := range []string{v1.RoutesPath + "?watch=true&limit=1", v1.FlowsPath + "?watch=true"} {
		response, err := http.Get(s.URL + wrong)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s is answered %s", wrong, response.Status)
		}
	}
}

func TestParsePosition(t *testing.T) {
	for text, want := range map[string]*Position{"3.17.205": {3, 17, 205}, "": nil, "3.17": nil, "3.17.-1": nil, "a.b.c": nil, "1.2.3.4": nil} {
		got := parsePosition(text)
		if (got == nil) != (want == nil) || got != nil && (*got != *want || got.String() != text) {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

// deadlines records how long the reader and the writer of an answer have.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = append(d.read, t)
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = append(d.write, t)
	return nil
}

// TestStreamsAreWrittenAlike: lists and taps are streams of one form, which outlast the time for the question, and each piece has to be
// read in time.
func TestStreamsAreWrittenAlike(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := Reads(Config{
		Watches: map[string]Watch{v1.RoutesPath: func(context.Context, *Position, string) (Update, error) {
			cancel()
			return Update{At: Position{1, 2, 3}}, nil
		}},
		Tap: func(_ context.Context, _ model.TapFilter, show func(model.TapEvent) error) error {
			return show(model.TapEvent{Dropped: 1})
		},
	})
	for uri, want := range map[string]string{
		v1.RoutesPath + "?watch=true": "event: current\nid: 1.2.3\ndata: {\"epoch\":1,\"revision\":2}\n\n",
		v1.TapPath:                    "data: {\"dropped\":1}\n\n",
	} {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodGet, uri, nil)
		if uri != v1.TapPath {
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(d, r)
		if d.Body.String() != want || !d.Flushed || d.Header().Get("Content-Type") != eventStream || d.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s is %d %v, flushed: %t\n%s", uri, d.Code, d.Header(), d.Flushed, d.Body)
		}
		if len(d.read) != 1 || !d.read[0].IsZero() || len(d.write) != 1 || d.write[0].IsZero() {
			t.Errorf("%s is read until %v and written until %v", uri, d.read, d.write)
		}
	}
}
