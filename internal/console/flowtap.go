package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// FlowTapQuestion is which flows somebody wants to see. Empty fields select all.
type FlowTapQuestion struct {
	Of              string // a frontend, a VIP, or the owner of frontends
	Namespace       string // of the owner
	Client, Backend string
	Limit           int
}

func (q FlowTapQuestion) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"of": q.Of, "namespace": q.Namespace, "client": q.Client, "backend": q.Backend} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// Parse reads a question.
func (q FlowTapQuestion) Parse() (f model.FlowTapQuery, err error) {
	f = model.FlowTapQuery{Of: q.Of, Namespace: q.Namespace}
	if q.Client != "" {
		if f.Client, err = parsePrefix(q.Client); err != nil {
			return f, fmt.Errorf("client %q: want an address or a CIDR such as 192.0.2.0/24", q.Client)
		}
	}
	if q.Backend != "" {
		if f.Backend, err = netip.ParseAddr(bare(q.Backend)); err != nil {
			return f, fmt.Errorf("backend %q: want an address such as 10.0.0.1", q.Backend)
		}
		f.Backend = f.Backend.Unmap()
	}
	switch {
	case q.Limit < 0:
		return f, fmt.Errorf("limit %d: want a number of events", q.Limit)
	case len(q.Of) > maxTapText || len(q.Namespace) > maxTapText:
		return f, fmt.Errorf("want at most %d bytes of each text", maxTapText)
	}
	return f, nil
}

// flowTapHandler shows flows until the reader leaves, or has as many events as it asked for.
func flowTapHandler(tap func(context.Context, model.FlowTapQuery, func(model.FlowTapEvent) error) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if crossSite(r) {
			http.Error(w, "another site may not ask", http.StatusForbidden)
			return
		}
		values := r.URL.Query()
		q := FlowTapQuestion{Of: values.Get("of"), Namespace: values.Get("namespace"), Client: values.Get("client"), Backend: values.Get("backend")}
		var err error
		if q.Limit, err = strconv.Atoi(cmp.Or(values.Get("limit"), "0")); err != nil {
			http.Error(w, fmt.Sprintf("limit %q: want a number of events", values.Get("limit")), http.StatusBadRequest)
			return
		}
		f, err := q.Parse()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		showEvents(w, r, q.Limit, func(e model.FlowTapEvent) bool { return e.Event != nil }, func(ctx context.Context, show func(model.FlowTapEvent) error) error {
			return tap(ctx, f, show)
		})
	}
}

// TapFlows shows flows as they begin, move and end, until ctx is done, show fails, or there were as many as asked for.
func (c Client) TapFlows(ctx context.Context, q FlowTapQuestion, show func(v1.FlowTapEvent) error) error {
	return showStream(ctx, c, v1.FlowTapPath+"?"+q.values().Encode(), show)
}

// FlowText is a line about an event of a flow, for a terminal.
func FlowText(e v1.FlowEvent) string {
	client := e.Client.String()
	if e.Client.Port() == 0 {
		client = e.Client.Addr().String() + " (all ports)"
	}
	to, why := "", ""
	if e.Backend.IsValid() {
		to = " -> " + e.Backend.String()
	}
	if e.BackendMachine != "" {
		to += " at " + e.BackendMachine
	}
	if e.Kind == model.FlowMove {
		to += ", before "
		if e.From.IsValid() {
			to += e.From.String()
		} else {
			to += "one that is not known any more"
		}
	}
	if e.Reason != "" {
		why = ": " + cmp.Or(model.FlowCause(e.Reason).Text(), e.Reason)
	}
	line := fmt.Sprintf("%s %s %-5s %s from %s%s, %s%s", e.At.Local().Format("15:04:05.000"), e.Machine, e.Kind, e.Frontend, client, to, e.Owner, why)
	var out bytes.Buffer
	_, _ = printable{&out}.Write([]byte(strings.ReplaceAll(line, "\n", "?")))
	return out.String()
}
