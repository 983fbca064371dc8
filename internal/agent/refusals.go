package agent

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// refusalGather is how long refusals wait for others of the same cause before they are
	// logged: Envoy refuses one resource at a time.
	refusalGather = time.Second
	// refusalGap is how far two lines about one cause are apart, at least.
	refusalGap = time.Minute
)

// refusals say in the log what Envoy refuses: of listeners each one, of other resources one
// line a cause, with a count. What is refused still is said once. It is not safe for
// concurrent use.
type refusals struct {
	log       *slog.Logger
	listeners map[string]string // what was said of a listener that is not served
	causes    map[cause]*refusal
}

// cause is why resources of a type are refused, in Envoy's words without their names.
type cause struct {
	kind   delta.Type
	reason string
}

// refusal is what is known of one cause.
type refusal struct {
	names map[string]struct{} // refused now
	fresh []string            // of them, those that no line has counted
	said  time.Time           // of the last line; zero: none
}

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{log: log, listeners: map[string]string{}, causes: map[cause]*refusal{}}
}

// look compares what is wrong now with what was said, and returns when to look again even if
// nothing happens; zero: not. serves says whether Envoy runs a listener as wanted.
func (r *refusals) look(problems []*agentv1.Problem, serves func(string) bool, now time.Time) time.Time {
	wrong := map[string]struct{}{}
	current := map[cause]map[string]struct{}{}
	for _, p := range problems {
		reason := strings.Join(strings.Fields(p.GetMessage()), " ")
		switch {
		case p.GetTypeUrl() == string(typeListener):
			wrong[p.GetName()] = struct{}{}
			if r.listeners[p.GetName()] != reason {
				r.listeners[p.GetName()] = reason
				if p.GetKind() == agentv1.Problem_KIND_WAITING {
					r.log.Warn("the proxy does not serve a listener", "listener", p.GetName(), "reason", reason)
				} else {
					r.log.Warn("the proxy refuses a listener", "listener", p.GetName(), "reason", reason)
				}
			}
		case p.GetKind() == agentv1.Problem_KIND_REFUSED:
			c := cause{delta.Type(p.GetTypeUrl()), anonymous(reason, p.GetName())}
			if current[c] == nil {
				current[c] = map[string]struct{}{}
			}
			current[c][p.GetName()] = struct{}{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.listeners)) {
		if _, still := wrong[name]; !still && serves(name) {
			delete(r.listeners, name)
			r.log.Info("the proxy accepted the listener", "listener", name)
		}
	}
	return r.lookCauses(current, now)
}

// lookCauses is look for what is no listener.
func (r *refusals) lookCauses(current map[cause]map[string]struct{}, now time.Time) (next time.Time) {
	for c, names := range current {
		known := r.causes[c]
		if known == nil {
			known = &refusal{}
			r.causes[c] = known
		}
		for name := range names {
			if _, was := known.names[name]; !was {
				known.fresh = append(known.fresh, name)
			}
		}
		known.names = names
	}
	order := slices.SortedFunc(maps.Keys(r.causes), func(a, b cause) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.reason, b.reason))
	})
	for _, c := range order {
		known := r.causes[c]
		if _, still := current[c]; !still {
			known.names = nil
		}
		// What has gone again meanwhile is nobody's concern.
		known.fresh = slices.DeleteFunc(known.fresh, func(name string) bool { _, is := known.names[name]; return !is })
		quiet := now.Before(known.said.Add(refusalGap))
		switch {
		case len(known.fresh) > 0 && !quiet:
			slices.Sort(known.fresh)
			r.log.Warn("the proxy refuses resources", "type", shortType(c.kind), "count", len(known.fresh), "of", len(known.names),
				"first", known.fresh[0], "reason", c.reason)
			known.fresh, known.said = nil, now
		case len(known.fresh) > 0:
			next = earlier(next, known.said.Add(refusalGap))
		case len(known.names) > 0:
		case quiet: // it may come back: then the pause holds
			next = earlier(next, known.said.Add(refusalGap))
		default:
			if !known.said.IsZero() {
				r.log.Info("the proxy no longer refuses resources for this reason", "type", shortType(c.kind), "reason", c.reason)
			}
			delete(r.causes, c)
		}
	}
	return next
}

// earlier is the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// anonymous is a reason without the name that it is about, and the parts of it.
func anonymous(reason, name string) string {
	for _, part := range []string{name, name[strings.IndexByte(name, '/')+1:], name[strings.LastIndexByte(name, '/')+1:]} {
		if len(part) > 2 {
			reason = strings.ReplaceAll(reason, part, "…")
		}
	}
	return reason
}

// shortType is the last part of a type URL.
func shortType(t delta.Type) string { return string(t[strings.LastIndexByte(string(t), '.')+1:]) }

// keepSaying logs what Envoy refuses until ctx is done.
func (r *relay) keepSaying(ctx context.Context) error {
	known := newRefusals(r.log)
	var version uint64
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			version = 0
		case <-r.says:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(refusalGather):
		}
		now, problems := r.problems(version)
		if now == version {
			continue
		}
		version = now
		if next := known.look(problems, r.runs, r.now()); !next.IsZero() {
			timer.Reset(max(0, next.Sub(r.now())))
		}
	}
}
