package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// isFrontend says whether the argument of tap is a frontend: what is shown are flows then.
func isFrontend(text string) bool {
	return strings.HasPrefix(text, "tcp://") || strings.HasPrefix(text, "udp://")
}

// flowQuestion reads what to show: tcp://VIP:PORT, a VIP, or [KIND/]NAMESPACE/NAME of the owner.
func flowQuestion(text, namespace string) (q console.FlowTapQuestion, err error) {
	q = console.FlowTapQuestion{Of: text, Namespace: namespace}
	if isFrontend(text) {
		if _, err := model.ParseFrontend(text); err != nil {
			return q, err
		}
		return q, nil
	}
	parts := strings.Split(text, "/")
	switch len(parts) {
	case 1: // a VIP, or the name of an owner in the namespace
		if text != "" && namespace != "" && !strings.ContainsAny(text, ".:") {
			q.Of = namespace + "/" + text
		}
		return q, nil
	case 2:
		q.Namespace = parts[0]
	case 3:
		q.Of, q.Namespace = parts[0]+" "+parts[1]+"/"+parts[2], parts[1]
	default:
		return q, fmt.Errorf("FRONTEND %q: want tcp://VIP:PORT, udp://VIP:PORT, a VIP, or [KIND/]NAMESPACE/NAME of its owner", text)
	}
	if namespace != "" && namespace != q.Namespace {
		return q, fmt.Errorf("FRONTEND %q is not in namespace %q (-n)", text, namespace)
	}
	return q, nil
}

// tapFlows shows flows until ctx is done.
func tapFlows(ctx context.Context, plane console.Client, q console.FlowTapQuestion, out, notes io.Writer, asJSON bool) error {
	v := &flowTapView{out: out, notes: notes, json: asJSON, last: time.Now()}
	err := plane.TapFlows(ctx, q, v.show)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		return advised(err)
	case q.Limit == 0 || v.shown < q.Limit:
		return fmt.Errorf("the plane has ended the stream after %s: it stopped, or the right to see them is gone", counted(v.shown, "event"))
	}
	left := ""
	if v.dropped > 0 {
		left = fmt.Sprintf(", at least %d left out", v.dropped)
	}
	fmt.Fprintf(notes, "%s shown%s\n", counted(v.shown, "event"), left)
	return nil
}

// flowTapView writes what a plane shows of flows.
type flowTapView struct {
	out, notes io.Writer
	json       bool
	shown      int
	dropped    uint64
	last       time.Time
	said       map[string]bool
}

func (v *flowTapView) show(e v1.FlowTapEvent) error {
	if v.said == nil {
		v.said = map[string]bool{}
		fmt.Fprintln(v.notes, "waiting for flows; Ctrl-C ends")
	}
	note := func(format string, args ...any) {
		text := console.PlainText(fmt.Sprintf(format, args...))
		if !v.said[text] && len(v.said) < 1000 {
			v.said[text] = true
			fmt.Fprintln(v.notes, text)
		}
	}
	for _, m := range e.Machines {
		if m.Unable != "" {
			note("warning: machine %s shows nothing: %s", m.Machine, m.Unable)
		}
		for _, n := range m.Notes {
			note("machine %s: %s", m.Machine, n)
		}
	}
	for _, f := range e.Frontends {
		note("watching %s", f)
	}
	if e.Dropped > 0 {
		v.dropped += e.Dropped
		fmt.Fprintf(v.notes, "%s left out\n", counted(int(e.Dropped), "event"))
	}
	if e.Event == nil {
		if v.shown == 0 && time.Since(v.last) >= tapQuiet {
			v.last = time.Now()
			fmt.Fprintln(v.notes, "no event yet: 'fairlead top frontends' shows which frontends have flows, 'fairlead flows' those that are open")
		}
		return nil
	}
	v.shown++
	line := []byte(console.FlowText(*e.Event))
	if v.json {
		var err error
		if line, err = json.Marshal(e.Event); err != nil {
			return fmt.Errorf("write a flow: %w", err)
		}
		line = console.PlainJSON(line)
	}
	if _, err := fmt.Fprintf(v.out, "%s\n", line); err != nil {
		return fmt.Errorf("write a flow: %w", err)
	}
	return nil
}
