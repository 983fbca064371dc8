package trail

import (
	"strings"
	"testing"
	"time"
	"unicode"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
)

func at(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }

func trailOf(machines ...Machine) Trail {
	return Trail{
		ID: [16]byte{1}, Epoch: 3, Revision: 17,
		Objects:  []Object{{Object: model.Object{Kind: "HTTPRoute", Namespace: "shop", Name: "web"}, Verb: model.ChangeChanged, Who: "ann", Seen: at(0)}},
		Received: at(5), Translated: at(7), Published: at(10), Machines: machines, Ended: at(60_000),
	}
}

func lines(spans []*tracev1.Span) string {
	names := map[string]string{}
	var b strings.Builder
	for _, s := range spans {
		names[string(s.GetSpanId())] = s.GetName()
		b.WriteString(names[string(s.GetParentSpanId())] + "/" + s.GetName())
		for _, t := range []uint64{s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano()} {
			b.WriteString(" " + time.Unix(0, int64(t)).Sub(at(0)).String())
		}
		b.WriteString(" " + s.GetStatus().GetMessage() + "\n")
	}
	return b.String()
}

func TestSpans(t *testing.T) {
	got := lines(trailOf(
		Machine{Name: "edge-1", Acknowledged: at(20), Active: at(30)},
		Machine{Name: "edge-2", Acknowledged: at(20)},
		Machine{Name: "edge-3"},
		Machine{Name: "edge-4", Active: at(40)},
	).Spans())
	want := `/change 0s 1m0s 2 of 4 machines did not run it yet
change/api 0s 5ms 
change/translate 5ms 7ms 
change/publish 7ms 10ms 
change/machine 10ms 30ms 
machine/acknowledge 10ms 20ms 
machine/activate 20ms 30ms 
change/machine 10ms 1m0s its proxy did not run it yet
machine/acknowledge 10ms 20ms 
change/machine 10ms 1m0s its agent did not acknowledge it yet
change/machine 10ms 40ms 
machine/acknowledge 10ms 40ms 
machine/activate 40ms 40ms 
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := lines(trailOf(Machine{Name: "edge-1", Acknowledged: at(20), Active: at(30)}).Spans()); !strings.HasPrefix(got, "/change 0s 30ms \n") {
		t.Errorf("a trace that is complete is\n%s", got)
	}
}

// TestSpansAreBounded: neither many objects and machines nor long and strange texts make a trace that a collector must refuse.
func TestSpansAreBounded(t *testing.T) {
	tr := trailOf()
	strange := strings.Repeat("\u202e\x1b[31m\xff", 20_000)
	tr.Objects, tr.Machines = nil, nil
	for range 10 * MaxMachines {
		tr.Objects = append(tr.Objects, Object{Object: model.Object{Kind: "HTTPRoute", Name: strange}, Who: strange, Seen: at(90_000)})
		tr.Machines = append(tr.Machines, Machine{Name: strange, Acknowledged: at(1), Active: at(2)})
	}
	spans := tr.Spans()
	if len(spans) != MaxSpans {
		t.Errorf("%d spans, want %d", len(spans), MaxSpans)
	}
	seen, size := map[string]bool{}, 0
	for _, s := range spans {
		b, err := proto.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		size += len(b)
		if seen[string(s.GetSpanId())] || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Fatalf("the span is %v", s)
		}
		seen[string(s.GetSpanId())] = true
		for _, a := range s.GetAttributes() {
			if strings.ContainsFunc(a.GetValue().GetStringValue(), func(r rune) bool { return !unicode.IsPrint(r) && r != unicode.ReplacementChar }) {
				t.Fatalf("an attribute is %q", a.GetValue().GetStringValue())
			}
		}
	}
	if size > 1<<20 {
		t.Errorf("%d bytes", size)
	}
}
