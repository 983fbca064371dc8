package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// RouteList is where the routes of the edges are read. Nobody changes its rows.
type RouteList struct {
	Rows func(ctx context.Context, host, namespace string) ([]model.RouteRow, error)
	// Figures are rows with what proxies have counted.
	Figures func(context.Context, []model.RouteRow) []model.RouteRow
}

func routesHandler(l *RouteList) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		rows, err := l.Rows(r.Context(), q.Get("host"), q.Get("namespace"))
		answerPage(w, r, routeOrder, rows, err, func(rows []model.RouteRow) []model.RouteRow {
			if q.Get("figures") != "true" {
				return rows
			}
			return l.Figures(r.Context(), rows)
		})
	}
}

var routeOrder = order[model.RouteRow]{
	key: func(r model.RouteRow) string {
		return strings.Join([]string{string(r.Listener), r.Host, r.Match, r.Name, r.Owner.String()}, "\x00")
	},
	text: func(r model.RouteRow) string {
		text := r.Host + " " + r.Match + " " + r.Owner.String() + " " + r.State + " " + r.Action
		for _, b := range r.Backends {
			text += " " + string(b.Group)
		}
		return text
	},
	by: map[string]func(a, b model.RouteRow) int{
		"host":  compareBy(func(r model.RouteRow) string { return r.Host }),
		"owner": compareBy(func(r model.RouteRow) string { return r.Owner.String() }),
		"state": compareBy(func(r model.RouteRow) string { return r.State }),
	},
}

// Routes asks a plane's console for the routes of the edges, with the figures of proxies.
func (c Client) Routes(ctx context.Context, host, namespace string) ([]v1.Route, error) {
	body, err := c.Get(ctx, v1.RoutesPath+"?"+url.Values{"host": {host}, "namespace": {namespace}, "figures": {"true"}}.Encode())
	if err != nil {
		return nil, err
	}
	var rows []v1.Route
	if err := json.Unmarshal(body, &rows); err != nil {
		return nil, fmt.Errorf("read the routes from %s: %w", c.URL, err)
	}
	return rows, nil
}

// WriteRoutes renders routes for a terminal, a line a share; most bounds the lines, 0 does
// not.
func WriteRoutes(w io.Writer, rows []v1.Route, most int) error {
	t := tabwriter.NewWriter(printable{w}, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "LISTENER\tHOST\tMATCH\tOWNER\tSTATE\tBACKENDS\tSHARE\tHEALTH\tREQUESTS\t5XX")
	lines, left := 0, 0
	for _, r := range rows {
		for _, cells := range routeLines(r) {
			if most > 0 && lines == most {
				left++
				continue
			}
			lines++
			fmt.Fprintln(t, strings.Join(cells[:], "\t"))
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the routes: %w", err)
	}
	var err error
	switch {
	case len(rows) == 0:
		_, err = fmt.Fprintln(w, "no route: none is published for this")
	case left > 0:
		_, err = fmt.Fprintf(w, "%d more lines: --all prints them, a HOST narrows them down\n", left)
	}
	return err
}

// routeCells are the columns of a route; the last two are figures of proxies.
type routeCells [10]string

// routeLines are the lines of a route, one for each share of its requests. What a line has in common with the first is empty.
func routeLines(r v1.Route) (lines []routeCells) {
	if len(r.Backends) == 0 {
		lines = append(lines, routeCells{5: r.Action})
	}
	for _, b := range r.Backends {
		share := fmt.Sprintf("%g%%", b.Percent)
		if b.Group == "" {
			lines = append(lines, routeCells{5: "broken reference: 500", 6: share})
			continue
		}
		lines = append(lines, routeCells{5: string(b.Group), 6: share, 7: healthText(b), 8: fmt.Sprint(b.Requests), 9: fmt.Sprint(b.Errors)})
	}
	copy(lines[0][:], []string{string(r.Listener), r.Host, r.Match, r.Owner.String(), r.State})
	return lines
}

func healthText(b v1.RouteBackend) string {
	text := fmt.Sprintf("%d/%d ready", b.Ready, b.Total)
	if b.HealthKnown && b.Healthy < b.Ready {
		text += fmt.Sprintf(", %d healthy", b.Healthy)
	}
	return strings.TrimSpace(text)
}
