package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// TapVerb is the right to see single requests. No role that may read everything has it.
const TapVerb = "tap"

// maxTapText bounds what is asked for.
const maxTapText = 512

// TapQuestion is which requests somebody wants to see. Empty fields select all.
type TapQuestion struct {
	Kind, Namespace, Name string // of the resource that owns the route
	Host, Path            string
	Status                string // "5xx", "404" or "400-499"
	Header                string // "name" or "name: value"
	Latency               time.Duration
	Limit                 int
}

func (q TapQuestion) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"kind": q.Kind, "namespace": q.Namespace, "name": q.Name, "host": q.Host, "path": q.Path, "status": q.Status, "header": q.Header,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Latency > 0 {
		v.Set("latency", q.Latency.String())
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// Filter is the filter that a question means.
func (q TapQuestion) Filter() (f model.TapFilter, err error) {
	f = model.TapFilter{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, Host: strings.ToLower(q.Host), Path: q.Path, SlowerThan: q.Latency}
	if f.StatusFrom, f.StatusTo, err = statuses(q.Status); err != nil {
		return f, err
	}
	name, value, _ := strings.Cut(q.Header, ":")
	f.Header, f.Value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
	switch {
	case f.Header != "" && !model.TapHeader(f.Header):
		return f, fmt.Errorf("header %q is not recorded: want one of %s; or of the answer one of %s", f.Header, strings.Join(model.TapHeaders(), ", "), strings.Join(model.TapResponseHeaders(), ", "))
	case q.Latency < 0:
		return f, fmt.Errorf("latency %s: want a duration, like 250ms", q.Latency)
	case q.Limit < 0:
		return f, fmt.Errorf("limit %d: want a number of requests", q.Limit)
	}
	for _, text := range []string{q.Kind, q.Namespace, q.Name, q.Host, q.Path, q.Header} {
		if len(text) > maxTapText {
			return f, fmt.Errorf("want at most %d bytes of each text", maxTapText)
		}
	}
	return f, nil
}

// statuses reads "5xx", "404" or "400-499".
func statuses(text string) (from, to uint32, err error) {
	if text == "" {
		return 0, 0, nil
	}
	wrong := fmt.Errorf("status %q: want a status like 404, a class like 5xx, or a range like 400-499", text)
	if class, is := strings.CutSuffix(strings.ToLower(text), "xx"); is && len(class) == 1 && class[0] >= '1' && class[0] <= '5' {
		from = uint32(class[0]-'0') * 100
		return from, from + 99, nil
	}
	low, high, isRange := strings.Cut(text, "-")
	first, err := strconv.ParseUint(low, 10, 16)
	if err != nil {
		return 0, 0, wrong
	}
	last := first
	if isRange {
		if last, err = strconv.ParseUint(high, 10, 16); err != nil {
			return 0, 0, wrong
		}
	}
	if first < 100 || last > 599 || first > last {
		return 0, 0, wrong
	}
	return uint32(first), uint32(last), nil //nolint:gosec // below 600
}

func tapQuestion(q url.Values) (t TapQuestion, err error) {
	t = TapQuestion{
		Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name"), Host: q.Get("host"), Path: q.Get("path"),
		Status: q.Get("status"), Header: q.Get("header"),
	}
	if text := q.Get("latency"); text != "" {
		if t.Latency, err = time.ParseDuration(text); err != nil {
			return t, fmt.Errorf("latency %q: want a duration, like 250ms", text)
		}
	}
	if t.Limit, err = strconv.Atoi(cmp.Or(q.Get("limit"), "0")); err != nil {
		return t, fmt.Errorf("limit %q: want a number of requests", q.Get("limit"))
	}
	return t, nil
}

var errShown = errors.New("as many as were asked for")

// tapHandler shows requests until the reader leaves, or has as many as it asked for.
func tapHandler(tap func(context.Context, model.TapFilter, func(model.TapEvent) error) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if crossSite(r) {
			http.Error(w, "another site may not ask", http.StatusForbidden)
			return
		}
		q, err := tapQuestion(r.URL.Query())
		var f model.TapFilter
		if err == nil {
			f, err = q.Filter()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		showEvents(w, r, q.Limit, func(e model.TapEvent) bool { return e.Record != nil }, func(ctx context.Context, show func(model.TapEvent) error) error {
			return tap(ctx, f, show)
		})
	}
}

// showEvents answers by a stream of what run shows, until the reader leaves, or has as many events as it asked for; 0: all. Others
// than those counted say how machines are.
func showEvents[E any](w http.ResponseWriter, r *http.Request, limit int, counted func(E) bool, run func(ctx context.Context, show func(E) error) error) {
	out, shown := newEvents(w), 0
	err := run(r.Context(), func(e E) error {
		if err := out.send("", "", e); err != nil {
			return err
		}
		if err := out.flush(); err != nil {
			return err
		}
		if counted(e) {
			shown++
		}
		if limit > 0 && shown >= limit {
			return errShown
		}
		return nil
	})
	switch {
	case err == nil || out.began:
	case errors.Is(err, ErrNone):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		w.Header().Set("Retry-After", "2")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// Tap shows requests as they are answered, until ctx is done, show fails, or there were as many as asked for.
func (c Client) Tap(ctx context.Context, q TapQuestion, show func(v1.TapEvent) error) error {
	return showStream(ctx, c, v1.TapPath+"?"+q.values().Encode(), show)
}

// showStream calls show with what a stream has, until ctx is done, show fails, or the stream ends. Its other events say that it goes on.
func showStream[E any](ctx context.Context, c Client, path string, show func(E) error) error {
	err := c.Stream(ctx, path, "", func(event Event) error {
		if event.Data == nil {
			return nil
		}
		var e E
		if err := json.Unmarshal(event.Data, &e); err != nil {
			return fmt.Errorf("read an event from %s: %w", c.URL, err)
		}
		return show(e)
	})
	if ctx.Err() != nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// TapText is a line about a request, for a terminal.
func TapText(r v1.TapRecord) string {
	var out bytes.Buffer
	status, owner, to := "  -", cmp.Or(r.Owner, "(no route)"), ""
	if r.Status > 0 {
		status = strconv.Itoa(int(r.Status))
	}
	if r.Rule != "" {
		owner += " " + r.Rule
	}
	if r.Backend != "" {
		to = " -> " + cmp.Or(r.Service, r.Group) + " " + r.Backend
	}
	first := ""
	if r.FirstByte > 0 {
		first = ", first byte " + tapTime(r.FirstByte)
	}
	if r.Attempts > 1 {
		first += ", " + strconv.Itoa(int(r.Attempts)) + " attempts"
	}
	details := ""
	if r.Details != "" && r.Details != "via_upstream" {
		details = " (" + r.Details + ")"
	}
	request := cmp.Or(r.Method, "(other method)") + " " + r.Host + r.Path
	if r.Method+r.Host+r.Path == "" {
		request = "(no readable request)"
	}
	line := fmt.Sprintf("%s %s %s %s in %s%s%s, %s%s, from %s", r.At.Local().Format("15:04:05.000"), r.Machine, status, request, tapTime(r.Seconds), first, details, owner, to, r.Client)
	_, _ = printable{&out}.Write([]byte(strings.ReplaceAll(line, "\n", "?")))
	return out.String()
}

// PlainText is text of others, for a terminal: one line.
func PlainText(text string) string {
	var out bytes.Buffer
	_, _ = printable{&out}.Write([]byte(strings.ReplaceAll(text, "\n", " ")))
	return out.String()
}

func tapTime(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
