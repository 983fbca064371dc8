package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// FlowFilter says which flows are wanted; its zero value is the first 1,000 of each machine.
type FlowFilter struct {
	model.FlowQuery
	// Machine whose flow table is asked; empty is all.
	Machine string
}

func (f FlowFilter) values() url.Values {
	v := url.Values{}
	set := func(name, text string) {
		if text != "" {
			v.Set(name, text)
		}
	}
	if f.Frontend.VIP.IsValid() {
		set("frontend", f.Frontend.String())
	}
	if f.Client.IsValid() {
		set("client", f.Client.String())
	}
	if f.Backend.IsValid() {
		set("backend", f.Backend.String())
	}
	if f.Limit > 0 {
		set("limit", strconv.Itoa(f.Limit))
	}
	set("machine", f.Machine)
	return v
}

// flowFilter reads what values writes.
func flowFilter(query string) (FlowFilter, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return FlowFilter{}, fmt.Errorf("the query: %w", err)
	}
	for name := range values {
		if !slices.Contains([]string{"frontend", "client", "backend", "machine", "limit"}, name) {
			return FlowFilter{}, fmt.Errorf("parameter %q is unknown: want frontend, client, backend, machine, limit", name)
		}
	}
	return ParseFlowFilter(values.Get("frontend"), values.Get("client"), values.Get("backend"), values.Get("machine"), values.Get("limit"))
}

// ParseFlowFilter reads a filter as people write it; empty texts select all.
func ParseFlowFilter(frontend, client, backend, machine, limit string) (f FlowFilter, err error) {
	f.Machine = machine
	if frontend != "" {
		if f.Frontend, err = model.ParseFrontend(frontend); err != nil {
			return FlowFilter{}, err
		}
	}
	if client != "" {
		if f.Client, err = parsePrefix(client); err != nil {
			return FlowFilter{}, fmt.Errorf("client %q: want an address or a CIDR such as 192.0.2.0/24", client)
		}
	}
	if backend != "" {
		if f.Backend, err = netip.ParseAddr(bare(backend)); err != nil {
			return FlowFilter{}, fmt.Errorf("backend %q: want an address such as 10.0.0.1", backend)
		}
		f.Backend = f.Backend.Unmap()
	}
	if limit != "" {
		if f.Limit, err = strconv.Atoi(limit); err != nil || f.Limit < 0 || f.Limit > v1.MaxFlows {
			return FlowFilter{}, fmt.Errorf("limit %q: want a number up to %d", limit, v1.MaxFlows)
		}
	}
	return f, nil
}

// bare takes the brackets off an address.
func bare(text string) string { return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]") }

func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(bare(text)); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

// ErrNone is the class of questions about something that is not there.
var ErrNone = errors.New("there is none")

// None is an error of the class ErrNone with a text of its own.
type None string

// Error implements error.
func (n None) Error() string { return string(n) }

// Is reports whether the error is ErrNone.
func (None) Is(target error) bool { return target == ErrNone }

func backendsHandler(backends func(ctx context.Context, of string) ([]model.BackendStatus, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		rows, err := backends(r.Context(), q.Get("of"))
		if namespace := q.Get("namespace"); namespace != "" {
			// Others may have been given the same rows.
			rows = slices.DeleteFunc(slices.Clone(rows), func(b model.BackendStatus) bool { return b.Owner.Namespace != namespace })
		}
		answerPage(w, r, backendOrder, rows, err)
	}
}

var backendOrder = order[model.BackendStatus]{
	key: func(b model.BackendStatus) string { return fmt.Sprint(b.Frontend, b.Owner, b.Address) },
	text: func(b model.BackendStatus) string {
		return fmt.Sprint(b.Frontend, " ", b.Owner, " ", b.Address, " ", b.Machine, " ", b.Health)
	},
	by: map[string]func(a, b model.BackendStatus) int{
		"address": func(a, b model.BackendStatus) int { return a.Address.Compare(b.Address) },
		"flows":   compareBy(func(b model.BackendStatus) uint64 { return b.Flows }),
		"owner":   compareBy(func(b model.BackendStatus) string { return b.Owner.String() }),
	},
}

func flowsHandler(flows func(ctx context.Context, f FlowFilter) (model.FlowList, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := flowFilter(r.URL.RawQuery)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		list, err := flows(r.Context(), f)
		answer(w, list, err)
	}
}

// answer writes a value as JSON, or an error.
func answer(w http.ResponseWriter, value any, err error) {
	switch {
	case errors.Is(err, ErrNone):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, append(body, '\n'))
}

// Backends asks a plane's console for the backends of a frontend, a VIP or an owner; of all
// frontends for an empty text.
func (c Client) Backends(ctx context.Context, of string) ([]v1.BackendStatus, error) {
	var rows []v1.BackendStatus
	return rows, c.read(ctx, v1.BackendsPath+"?"+url.Values{"of": {of}}.Encode(), &rows, "backends")
}

// Flows asks a plane's console for flows.
func (c Client) Flows(ctx context.Context, f FlowFilter) (v1.FlowList, error) {
	var list v1.FlowList
	return list, c.read(ctx, v1.FlowsPath+"?"+f.values().Encode(), &list, "flows")
}

func (c Client) read(ctx context.Context, path string, into any, what string) error {
	body, err := c.Get(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the %s from %s: %w", what, c.URL, err)
	}
	return nil
}

// WriteBackends renders backends for a terminal, each frontend with a heading; wide adds
// who says what of their health, and bytes. most bounds the lines, 0 does not.
func WriteBackends(w io.Writer, rows []v1.BackendStatus, wide bool, most int) error {
	b := bufio.NewWriterSize(printable{w}, screen)
	if len(rows) == 0 {
		fmt.Fprintln(b, "no backend: no frontend is balanced in the kernel, or these frontends have no backend (`fairlead vips` shows the frontends);\n"+
			"`fairlead routes` shows the routes of proxies and their backends")
	}
	left := 0
	if most > 0 && len(rows) > most {
		rows, left = rows[:most], len(rows)-most
	}
	for i := 0; i < len(rows); {
		n := i + 1
		for n < len(rows) && rows[n].Frontend == rows[i].Frontend {
			n++
		}
		if i > 0 {
			fmt.Fprintln(b)
		}
		fmt.Fprintf(b, "%s  %s\n", rows[i].Frontend, rows[i].Owner.Describe())
		writeBackends(b, rows[i:n], wide)
		i = n
	}
	if left > 0 {
		fmt.Fprintf(b, "%d more lines: --all prints them, a FRONTEND or SERVICE narrows them down\n", left)
	}
	return flushAll(b, "backends")
}

func writeBackends(w io.Writer, rows []v1.BackendStatus, wide bool) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprint(t, "  ADDRESS\tMACHINE\tSTATE\tHEALTH\tWEIGHT\tHOPS\tSHARE\tFLOWS\tPACKETS")
	if wide {
		fmt.Fprint(t, "\tROWS\tNEW FLOWS\tBYTES\tSAYS")
	}
	fmt.Fprintln(t)
	for _, r := range rows {
		figure := func(n uint64) string {
			if !r.Known {
				return "-"
			}
			return strconv.FormatUint(n, 10)
		}
		address := r.Address.String()
		if r.Proxy(r.Frontend) {
			address = "proxy"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d\t%d\t%g%%\t%s\t%s", address, dash(r.Machine), r.StateText(), healthOf(r), r.Weight, r.HopWeight, r.Percent,
			figure(r.Flows), figure(r.Packets))
		if wide {
			part := "-"
			if r.Known {
				part = fmt.Sprintf("%g%%", r.RowsPercent)
			}
			fmt.Fprintf(t, "\t%s\t%s\t%s\t%s", part, figure(r.NewFlows), figure(r.Bytes), saysText(r.Says))
		}
		fmt.Fprintln(t)
	}
	flush(t)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// healthOf is the verdict, with how many of those who say something agree.
func healthOf(r v1.BackendStatus) string {
	if r.Health == v1.HealthUnchecked {
		if slices.ContainsFunc(r.Says, func(s v1.HealthSaid) bool { return s.Machine == "" }) {
			return "not checked"
		}
		return "-"
	}
	agree := 0
	for _, s := range r.Says {
		if s.Health == r.Health {
			agree++
		}
	}
	if len(r.Says) == 0 {
		return string(r.Health)
	}
	return fmt.Sprintf("%s (%d of %d)", r.Health, agree, len(r.Says))
}

func saysText(says []v1.HealthSaid) string {
	var out []string
	for _, s := range says {
		if s.Machine == "" {
			out = append(out, s.Message)
			continue
		}
		text := s.Machine + " " + string(s.Health)
		if s.Message != "" && s.Health != v1.Healthy {
			text += ": " + s.Message
		}
		out = append(out, text)
	}
	return dash(strings.Join(out, "; "))
}

// WriteFlows renders flows for a terminal; chosen says that only some were asked for.
func WriteFlows(w io.Writer, list v1.FlowList, chosen bool) error {
	b := bufio.NewWriterSize(printable{w}, screen)
	switch {
	case len(list.Answered) == 0:
		fmt.Fprintln(b, "no machine has answered: `fairlead status` says which are connected")
	case len(list.Flows) == 0 && chosen:
		fmt.Fprintf(b, "no such flow at %s\n", strings.Join(list.Answered, ", "))
	case len(list.Flows) == 0:
		fmt.Fprintf(b, "no flow at %s: no frontend has a connection (`fairlead vips` shows the frontends; connections to proxies at a machine's own addresses are not flows)\n",
			strings.Join(list.Answered, ", "))
	default:
		t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "AT\tFRONTEND\tCLIENT\tBACKEND\tMACHINE\tSTATE\tIDLE")
		for _, f := range list.Flows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.At, f.Frontend, f.Client, f.Backend, dash(f.Machine), f.State, f.Idle.Round(time.Second))
		}
		flush(t)
	}
	if len(list.Silent) > 0 {
		fmt.Fprintf(b, "not answered in time: %s, whose flows are missing here (`fairlead status` shows the state of machines)\n", strings.Join(list.Silent, ", "))
	}
	if len(list.Truncated) > 0 {
		fmt.Fprintf(b, "there are more at %s: --limit, --frontend, --client and --backend choose\n", strings.Join(list.Truncated, ", "))
	}
	return flushAll(b, "flows")
}
