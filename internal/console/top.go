package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// TopQuestion is what somebody wants to see of the requests.
type TopQuestion struct {
	By        string // routes, hosts, namespaces, listeners, upstreams, frontends or backends; empty: routes
	Namespace string // of the owners of routes; empty: all
	Sort      string // rate, errors, latency or name; empty: rate
	Limit     int    // rows; 0: all
	After     uint64 // the sample that is known: the answer waits for the next; 0: it does not
}

// ErrQuestion is the class of questions that nobody can answer.
var ErrQuestion = errors.New("the question is wrong")

func topHandler(top func(context.Context, TopQuestion) (model.Top, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), "0"))
		if err != nil || limit < 0 {
			http.Error(w, "limit is no number of rows", http.StatusBadRequest)
			return
		}
		after, err := strconv.ParseUint(cmp.Or(q.Get("after"), "0"), 10, 64)
		if err != nil {
			http.Error(w, "after is no number of a sample", http.StatusBadRequest)
			return
		}
		t, err := top(r.Context(), TopQuestion{By: q.Get("by"), Namespace: q.Get("namespace"), Sort: q.Get("sort"), Limit: limit, After: after})
		if errors.Is(err, ErrQuestion) {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, t, err)
	}
}

// awaited has a question wait for its sample before it takes a slot for answers, of which there are few. What a standby passes on waits
// at the plane that leads.
func awaited(c Config, passed, answers http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.Standby != nil && c.Standby() != nil {
			passed.ServeHTTP(w, r)
			return
		}
		after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
		if err == nil && c.AwaitTop != nil && c.AwaitTop(r.Context(), after) != nil {
			return // whoever asked is gone
		}
		answers.ServeHTTP(w, r)
	})
}

// Top asks a plane's console what proxies answer a second.
func (c Client) Top(ctx context.Context, q TopQuestion) (v1.Top, error) {
	body, err := c.Get(ctx, v1.TopPath+"?"+url.Values{
		"by": {q.By}, "namespace": {q.Namespace}, "sort": {q.Sort}, "limit": {strconv.Itoa(q.Limit)}, "after": {strconv.FormatUint(q.After, 10)},
	}.Encode())
	if err != nil {
		return v1.Top{}, err
	}
	var t v1.Top
	if err := json.Unmarshal(body, &t); err != nil {
		return v1.Top{}, fmt.Errorf("read what proxies answer from %s: %w", c.URL, err)
	}
	return t, nil
}

// WriteTop renders what proxies answer for a terminal. by is what the rows are, such as "routes".
func WriteTop(w io.Writer, t v1.Top, by string) error {
	flows, backends := by == "frontends", by == "backends"
	unit := "requests/s"
	switch {
	case flows:
		unit = "new flows/s"
	case backends:
		unit = "requests/s and new flows/s"
	}
	total := "0" // in a table it is a dash
	if t.Rate != 0 {
		total = rate(t.Rate)
	}
	legend := "" // in the empty line: a view has as many lines with it
	if slices.ContainsFunc(t.Rows, func(r v1.TopRow) bool { return r.Timed > 0 && r.Timed < enoughFor99 }) {
		legend = "~ is measured from too few requests: P50 from 1, P99 from fewer than 100"
	}
	fmt.Fprintf(printable{w}, "%s %s, %d of %d %s, %s, over %.1f s\n%s\n", total, unit, len(t.Rows), t.Total, by, machines(len(t.Machines)), t.Seconds, legend)
	table := tabwriter.NewWriter(printable{w}, 0, 8, 2, ' ', tabwriter.AlignRight)
	title := strings.ToUpper(strings.TrimSuffix(by, "s"))
	switch {
	case backends:
		fmt.Fprintf(table, "RATE/S\t5XX\tIN FLIGHT\tFIRST BYTE\tBYTES/S\tTOTAL\t  %s\n", title)
	case flows:
		fmt.Fprintf(table, "FLOWS/S\tBYTES/S\tTOTAL\t  %s\n", title)
	default:
		fmt.Fprintf(table, "REQ/S\t2XX\t3XX\t4XX\t5XX\tNONE\tP50\tP99\tTOTAL\t  %s\n", title)
	}
	for _, r := range t.Rows {
		if backends {
			first := "-"
			if r.FirstByte > 0 {
				first = latency(r.FirstByte)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t  %s\n",
				rate(r.Rate), rate(r.Rates[5]), inFlight(r.InFlight), first, rate(r.Received), r.Requests, r.Name)
			continue
		}
		if flows {
			fmt.Fprintf(table, "%s\t%s\t%d\t  %s\n", rate(r.Rate), rate(r.Received), r.Requests, r.Name)
			continue
		}
		p50, p99 := "-", "-"
		if r.Timed > 0 {
			p50, p99 = quantile(r.P50, r.Timed, enoughFor50), quantile(r.P99, r.Timed, enoughFor99)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t  %s\n",
			rate(r.Rate), rate(r.Rates[2]+r.Rates[1]), rate(r.Rates[3]), rate(r.Rates[4]), rate(r.Rates[5]), rate(r.Rates[0]), p50, p99, r.Requests, r.Name)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write what proxies answer: %w", err)
	}
	var err error
	switch {
	case len(t.Machines) == 0:
		_, err = fmt.Fprintln(w, "no proxy has answered: 'fairlead status' shows the machines")
	case len(t.Rows) == 0 && backends:
		_, err = fmt.Fprintln(w, "no backend: no frontend is balanced in the kernel, and no Service asks for metrics of its backends (fairlead.dev/metrics: backend)")
	case len(t.Rows) == 0 && flows:
		_, err = fmt.Fprintln(w, "no flow: no frontend is balanced in the kernel")
	case len(t.Rows) == 0:
		_, err = fmt.Fprintln(w, "no request: proxies have counted none for this since they began")
	}
	return err
}

// Of fewer requests a quantile is as good as the longest time of all: 1 / (1 - q) are needed to have one beyond it.
const (
	enoughFor50 = 2
	enoughFor99 = 100
)

// quantile is a time, marked if fewer requests than enough were measured.
func quantile(seconds float64, timed, enough uint64) string {
	if timed < enough {
		return "~" + latency(seconds)
	}
	return latency(seconds)
}

// latency is a time with two or three digits.
func latency(seconds float64) string {
	ms := seconds * 1000
	switch {
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
	}
	return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
}

func machines(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return strconv.Itoa(n) + " machines"
}

// rate is a number of requests a second, with a digit after the point while that says something.
func rate(r float64) string {
	switch {
	case r == 0:
		return "-"
	case r < 10:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return strconv.FormatFloat(r, 'f', 0, 64)
}

func inFlight(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}
