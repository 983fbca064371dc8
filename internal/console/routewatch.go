package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "fairlead.dev/internal/console/v1"
)

// RouteWatch writes the routes that a stream tells of, and then what changes of them. After a stream was broken it writes the
// difference only.
type RouteWatch struct {
	// Out is where routes are written to.
	Out io.Writer
	// Wants says whether the routes of a host are to be shown; exact: there is a host of the name that is asked for. Nil: all.
	Wants func(host string, exact bool) bool
	// Host is the name that is asked for, if any.
	Host string
	// JSON has a JSON object written for each block of routes that is new, changed or gone, and for each position.
	JSON bool
	// Most bounds the lines of the first list as text; 0 does not.
	Most int
	Now  func() time.Time

	begun  bool
	known  map[string][]watchedRoute // by block, as the stream told it
	shown  map[string][]watchedRoute // of those, what is shown
	widths []int
}

// watchedRoute is a route, and its JSON.
type watchedRoute struct {
	v1.Route
	raw json.RawMessage
}

// id tells a route from all others of its block.
func (r watchedRoute) id() string {
	return r.Name + "\x00" + r.Owner.String()
}

// Show writes what a stream has told. It returns how many lines it has left out.
func (v *RouteWatch) Show(w Watched) (left int, err error) {
	if v.known == nil {
		v.known, v.shown = map[string][]watchedRoute{}, map[string][]watchedRoute{}
	}
	stale := map[string]bool{}
	if w.Reset {
		for key := range v.known {
			stale[key] = true
		}
		clear(v.known)
	}
	for _, b := range w.Blocks {
		stale[b.Key] = true
		rows := make([]watchedRoute, len(b.Rows))
		for i, raw := range b.Rows {
			rows[i].raw = raw
			if err := json.Unmarshal(raw, &rows[i].Route); err != nil {
				return 0, fmt.Errorf("read a route: %w", err)
			}
		}
		if v.known[b.Key] = rows; len(rows) == 0 {
			delete(v.known, b.Key)
		}
	}
	exact := false
	if v.Wants != nil { // one host more or less decides about others
		for key, rows := range v.known {
			stale[key] = true
			exact = exact || rows[0].Host == v.Host
		}
	}
	var out bytes.Buffer
	var lines [][]string
	first := !v.begun
	if v.begun = true; first {
		v.widths = []int{0, len("changed")}
		lines = append(lines, []string{"AT", "CHANGE", "LISTENER", "HOST", "MATCH", "OWNER", "STATE", "BACKENDS", "SHARE", "HEALTH"})
	}
	for _, key := range slices.Sorted(maps.Keys(stale)) {
		rows := v.known[key]
		if v.Wants != nil && len(rows) > 0 && !v.Wants(rows[0].Host, exact) {
			rows = nil
		}
		was := v.shown[key]
		if v.shown[key] = rows; len(rows) == 0 {
			delete(v.shown, key)
		}
		if slices.EqualFunc(was, rows, func(a, b watchedRoute) bool { return bytes.Equal(a.raw, b.raw) }) {
			continue
		}
		if v.JSON {
			v.block(&out, key, rows)
			continue
		}
		for _, c := range difference(was, rows) {
			for i, cells := range routeLines(c.Route) {
				if first && v.Most > 0 && len(lines) > v.Most {
					left++
					continue
				}
				at, what := "", ""
				if i == 0 {
					at, what = v.Now().Format("15:04:05"), c.what
				}
				if first {
					what = ""
				}
				lines = append(lines, append([]string{at, what}, cells[:8]...))
			}
		}
	}
	if v.JSON {
		v.object(&out, struct {
			Event string `json:"event"`
			v1.Current
		}{v1.EventCurrent, w.Current})
	} else {
		v.write(&out, lines)
	}
	if _, err := v.Out.Write(out.Bytes()); err != nil {
		return left, fmt.Errorf("write routes: %w", err)
	}
	return left, nil
}

// changedRoute is a route, and what became of it.
type changedRoute struct {
	v1.Route
	what string
}

// difference is what became of routes.
func difference(was, now []watchedRoute) (list []changedRoute) {
	before := map[string]watchedRoute{}
	for _, r := range was {
		before[r.id()] = r
	}
	for _, r := range now {
		old, known := before[r.id()]
		delete(before, r.id())
		switch {
		case !known:
			list = append(list, changedRoute{r.Route, "added"})
		case !bytes.Equal(old.raw, r.raw):
			list = append(list, changedRoute{r.Route, "changed"})
		}
	}
	for _, r := range was {
		if _, gone := before[r.id()]; gone {
			list = append(list, changedRoute{r.Route, "removed"})
		}
	}
	return list
}

// block writes a block as JSON.
func (v *RouteWatch) block(out *bytes.Buffer, key string, rows []watchedRoute) {
	list := make([]json.RawMessage, len(rows))
	for i, r := range rows {
		list[i] = r.raw
	}
	v.object(out, struct {
		Event string            `json:"event"`
		Key   string            `json:"key"`
		Rows  []json.RawMessage `json:"rows"`
	}{v1.EventBlock, key, list})
}

func (v *RouteWatch) object(out *bytes.Buffer, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		return // its rows were read from JSON
	}
	out.Write(PlainJSON(body))
	out.WriteByte('\n')
}

// write writes lines in columns that are as wide as the widest so far.
func (v *RouteWatch) write(out *bytes.Buffer, lines [][]string) {
	for _, cells := range lines {
		v.widths = append(v.widths, make([]int, len(cells)-min(len(cells), len(v.widths)))...)
		for i := range cells {
			cells[i] = oneLine(cells[i])
			v.widths[i] = max(v.widths[i], utf8.RuneCountInString(cells[i]))
		}
	}
	for _, cells := range lines {
		var text strings.Builder
		for i, cell := range cells {
			text.WriteString(cell + strings.Repeat(" ", v.widths[i]-utf8.RuneCountInString(cell)+2))
		}
		out.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
}
