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
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

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
func (q FlowTapQuestion) Parse() (f model.FlowTapQuestion, err error) {
	f = model.FlowTapQuestion{Of: q.Of, Namespace: q.Namespace}
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
func flowTapHandler(tap func(context.Context, model.FlowTapQuestion, func(model.FlowTapEvent) error) error) http.HandlerFunc {
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
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Time{}) // that of the question would end the answer
		begun, shown := false, 0
		err = tap(r.Context(), f, func(e model.FlowTapEvent) error {
			if !begun {
				begun = true
				w.Header().Set("Content-Type", eventStream)
				w.Header().Set("Cache-Control", "no-store")
				w.WriteHeader(http.StatusOK)
			}
			body, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("show a flow: %w", err)
			}
			_ = c.SetWriteDeadline(time.Now().Add(streamTime))
			if _, err := fmt.Fprintf(w, "data: %s\n\n", body); err != nil {
				return fmt.Errorf("show a flow: %w", err)
			}
			if err := c.Flush(); err != nil {
				return fmt.Errorf("show a flow: %w", err)
			}
			if e.Event != nil {
				shown++
			}
			if q.Limit > 0 && shown >= q.Limit {
				return errShown
			}
			return nil
		})
		switch {
		case err == nil || begun:
		case errors.Is(err, ErrNone):
			http.Error(w, err.Error(), http.StatusNotFound)
		default:
			w.Header().Set("Retry-After", "2")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

// TapFlows shows flows as they begin, move and end, until ctx is done, show fails, or there were as many as asked for.
func (c Client) TapFlows(ctx context.Context, q FlowTapQuestion, show func(v1.FlowTapEvent) error) error {
	err := c.Stream(ctx, v1.FlowTapPath+"?"+q.values().Encode(), "", func(event Event) error {
		if event.Data == nil {
			return nil
		}
		var e v1.FlowTapEvent
		if err := json.Unmarshal(event.Data, &e); err != nil {
			return fmt.Errorf("read a flow from %s: %w", c.URL, err)
		}
		return show(e)
	})
	if ctx.Err() != nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
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
