package muffle

import (
	"context"
	"log/slog"
)

// Handler passes on warnings and errors of others' code, and of each cause one a minute: on a
// full disk each write has several. What is held back is written with the first record, of any
// cause and level, that comes after its minute. Handlers that are derived from one share its counts.
type Handler struct {
	next  slog.Handler
	cause func(slog.Record) string
	with  string // attributes of the logger, as part of what a record says
	lines *lines
}

// NewHandler returns a Handler that passes on to next. cause names what records have in common
// that share a line.
func NewHandler(next slog.Handler, cause func(slog.Record) string) *Handler {
	return &Handler{next: next, cause: cause, lines: &lines{}}
}

// Enabled is that of the next handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// Handle passes the record on, or counts it.
func (h *Handler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level < slog.LevelWarn {
		h.lines.flush(record.Time, false)
		return h.next.Handle(ctx, record)
	}
	err := h.lines.event(record.Time, h.with+h.cause(record), func(events int) error {
		r := record
		if events > 1 {
			r = record.Clone()
			r.AddAttrs(slog.Int(key, events))
		}
		return h.next.Handle(context.WithoutCancel(ctx), r)
	})
	h.lines.flush(record.Time, false)
	return err
}

// WithAttrs returns a Handler whose records have these attributes too.
func (h *Handler) WithAttrs(a []slog.Attr) slog.Handler {
	d := *h
	for _, attr := range a {
		d.with += attr.String() + " "
	}
	d.next = h.next.WithAttrs(a)
	return &d
}

// WithGroup returns a Handler whose records have their attributes in a group.
func (h *Handler) WithGroup(g string) slog.Handler {
	d := *h
	d.with += g + "."
	d.next = h.next.WithGroup(g)
	return &d
}
