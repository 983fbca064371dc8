package trail

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"fairlead.dev/internal/model"
)

// Bounds of a Trail: what is beyond is counted only.
const (
	MaxObjects  = 50
	MaxMachines = 200
	// MaxSpans is how many spans a Trail makes at most.
	MaxSpans = 3 + MaxObjects + 3*MaxMachines
	// maxText bounds a text that others wrote, bytes.
	maxText = 256
)

// Trail is the way of one published revision.
type Trail struct {
	ID              [16]byte // of the trace; any but zero
	Epoch, Revision uint64
	Objects         []Object
	MoreObjects     int // that are not in Objects
	// Received is when the plane took the changes up. A stage without a time is left out.
	Received, Translated, Published time.Time
	Machines                        []Machine // that the revision concerns
	MoreMachines                    int       // that are not in Machines
	// Ended is when it was no longer followed.
	Ended time.Time
}

// Object is an object that was written.
type Object struct {
	model.Object
	Verb model.ChangeVerb
	// Who is the user who wrote it; empty: that is not known.
	Who string
	// Seen is when the watch of the API told of it.
	Seen time.Time
}

// Machine is a machine that was sent the revision.
type Machine struct {
	Name string
	// Acknowledged is when its agent had the revision, Active when its proxy ran it. Zero: that did not happen.
	Acknowledged, Active time.Time
}

// Spans are the spans of the trace, the first of which is the parent of the others.
func (t Trail) Spans() []*tracev1.Span {
	b := builder{id: t.ID}
	began, ended := t.extent()
	root := b.span("change", nil, began, ended,
		number("fairlead.epoch", t.Epoch), number("fairlead.revision", t.Revision),
		number("fairlead.objects", uint64(len(t.Objects)+t.MoreObjects)), number("fairlead.machines", uint64(len(t.Machines)+t.MoreMachines)))
	for i, o := range t.Objects {
		if i == MaxObjects {
			break
		}
		attributes := []*commonv1.KeyValue{
			text("fairlead.object.kind", o.Kind), text("fairlead.object.namespace", o.Namespace), text("fairlead.object.name", o.Name), text("fairlead.verb", string(o.Verb)),
		}
		if o.Who != "" {
			attributes = append(attributes, text("fairlead.user", o.Who))
		}
		b.span("api", root, o.Seen, t.Received, attributes...)
	}
	b.span("translate", root, t.Received, t.Translated)
	b.span("publish", root, t.Translated, t.Published)
	missing := 0
	for i, m := range t.Machines {
		if m.Active.IsZero() {
			missing++
		}
		if i < MaxMachines {
			t.machine(&b, root, m)
		}
	}
	if missing > 0 {
		root.Status = failed(fmt.Sprintf("%d of %d machines did not run it yet", missing, len(t.Machines)+t.MoreMachines))
	}
	return b.spans
}

// machine adds the spans of a machine.
func (t Trail) machine(b *builder, root *tracev1.Span, m Machine) {
	ended := latest(m.Acknowledged, m.Active)
	why := ""
	if m.Active.IsZero() {
		ended, why = t.Ended, "its proxy did not run it yet"
		if m.Acknowledged.IsZero() {
			why = "its agent did not acknowledge it yet"
		}
	}
	name := text("fairlead.machine", m.Name)
	parent := b.span("machine", root, t.Published, ended, name)
	if parent == nil {
		return
	}
	if why != "" {
		parent.Status = failed(why)
	}
	acknowledged := m.Acknowledged
	if acknowledged.IsZero() {
		acknowledged = m.Active // the report of the proxy may come first
	}
	b.span("acknowledge", parent, t.Published, acknowledged, name)
	b.span("activate", parent, acknowledged, m.Active, name)
}

// extent is from the first time of a Trail to the last one.
func (t Trail) extent() (began, ended time.Time) {
	began = t.Received
	for _, o := range t.Objects {
		if !o.Seen.IsZero() && o.Seen.Before(began) {
			began = o.Seen
		}
	}
	ended = latest(t.Received, t.Translated, t.Published)
	for _, m := range t.Machines {
		ended = latest(ended, m.Acknowledged, m.Active)
		if m.Active.IsZero() {
			ended = latest(ended, t.Ended)
		}
	}
	return began, ended
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

type builder struct {
	id    [16]byte
	spans []*tracev1.Span
}

// span adds a span. One without a time at either end is left out; a clock that was set back makes it a span of no length.
func (b *builder) span(name string, parent *tracev1.Span, from, to time.Time, attributes ...*commonv1.KeyValue) *tracev1.Span {
	if from.IsZero() || to.IsZero() || len(b.spans) == MaxSpans {
		return nil
	}
	to = latest(from, to)
	seed := sha256.Sum256(binary.BigEndian.AppendUint64(slices.Clone(b.id[:]), uint64(len(b.spans))))
	seed[0] |= 1 // an ID of zeros is none
	s := &tracev1.Span{
		TraceId: b.id[:], SpanId: seed[:8], Name: name, Kind: tracev1.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(from.UnixNano()), EndTimeUnixNano: uint64(to.UnixNano()), Attributes: attributes,
	}
	if parent != nil {
		s.ParentSpanId = parent.GetSpanId()
	}
	b.spans = append(b.spans, s)
	return s
}

func failed(why string) *tracev1.Status {
	return &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR, Message: why}
}

func number(key string, n uint64) *commonv1.KeyValue {
	return &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: int64(n)}}}
}

func text(key, value string) *commonv1.KeyValue {
	return &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: printable(value)}}}
}

// printable is a text that others wrote without what a terminal or a page would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s[:min(len(s), maxText)])
}
