package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/explain"
)

// explainFlowHandler answers with an explanation, 400 to what is no flow, and 503 when the
// plane cannot tell.
func explainFlowHandler(f func(context.Context, explain.FlowRequest) (explain.FlowExplanation, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		values := q.URL.Query()
		r, err := explain.NewFlowRequest(values.Get("url"), values.Get("from"), values.Get("machine"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(q.Context(), 10*time.Second)
		defer cancel()
		e, err := f(ctx, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		body, err := json.MarshalIndent(e, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		writeBody(w, append(body, '\n'))
	}
}

// ExplainFlow asks a plane's console what becomes of a flow.
func (c Client) ExplainFlow(ctx context.Context, r explain.FlowRequest) (v1.FlowExplanation, error) {
	var e v1.FlowExplanation
	values := url.Values{"url": {r.Frontend.String()}, "from": {r.Client.String()}}
	if r.Machine != "" {
		values.Set("machine", r.Machine)
	}
	body, err := c.Get(ctx, v1.ExplainFlowPath+"?"+values.Encode())
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("read the explanation from %s: %w", c.URL, err)
	}
	return e, nil
}

// WriteFlowExplanation renders the explanation of a flow for a terminal.
func WriteFlowExplanation(w io.Writer, e v1.FlowExplanation) error {
	b := &paragraphs{w: bufio.NewWriterSize(printable{w}, screen)}
	fmt.Fprintf(b.w, "%s, from %s\n", e.Request.Frontend, e.Request.Client)
	if v := e.VIP; v != nil {
		b.step("VIP", fmt.Sprintf("%s, %s of AddressPool %s, %s", v.Address, v.Mode, v.Pool, v.State))
		if v.Message != "" {
			b.line("%s", v.Message)
		}
	}
	if f := e.Frontend; f != nil {
		b.step("frontend", f.String())
		b.line("by %s", f.Owner.Describe())
		if f.Listener != "" {
			b.line("its backends are the proxies of %s", list(f.Machines, 8))
		}
		for _, d := range e.Discovered {
			b.line("%s", discoveredText(d))
		}
		writeFrontendAt(b, e.At)
	}
	if e.Rows > 0 {
		b.step("row", fmt.Sprintf("%d of %d, by hash %s of %s", e.Row, e.Rows, e.Hash, hashed(e.Frontend.Hash)))
		for i, k := range e.Asked {
			text := fmt.Sprintf("%d. %s", i+1, k.Address)
			if k.Machine != "" {
				text += " on machine " + k.Machine
			}
			text += fmt.Sprintf(": %s, weight %d, %.1f%% of the rows", k.StateText(), k.Weight, k.Percent)
			if k.Health != v1.HealthUnchecked {
				text += ", " + string(k.Health)
			}
			b.line("%s", text)
			b.line("   %s", k.Why)
		}
	}
	for _, f := range e.Flows {
		b.step("flow", fmt.Sprintf("%s has it: %s at %s, idle %s", f.At, f.State, f.Backend, f.Idle.Round(time.Second)))
	}
	b.step("answer", e.Answer)
	for _, n := range e.Notes {
		b.line("%s", n)
	}
	return flushAll(b.w, "explanation")
}

// writeFrontendAt says what machines do about a frontend, those that do the same together.
func writeFrontendAt(b *paragraphs, at []v1.FlowFrontendAt) {
	var order []string
	same := map[string][]string{}
	for _, m := range at {
		text := string(m.State)
		if m.Mode != "" {
			text += ", mode " + string(m.Mode)
		}
		if m.DataPlane != "" {
			text += " by " + string(m.DataPlane)
		}
		if m.Message != "" {
			text += " (" + m.Message + ")"
		}
		if same[text] == nil {
			order = append(order, text)
		}
		same[text] = append(same[text], m.Machine)
	}
	for _, text := range order {
		b.line("%s: %s", list(same[text], 8), text)
	}
}

func hashed(h v1.FlowHash) string {
	switch h {
	case v1.HashThreeTuple:
		return "client address, VIP and protocol"
	case v1.HashSource:
		return "the client address"
	default:
		return strings.Join([]string{"client address and port", "VIP and port", "protocol"}, ", ")
	}
}
