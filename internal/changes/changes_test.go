package changes

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDiff(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		want          string
	}{
		"a weight": {
			"spec: {rules: [{backendRefs: [{name: a, weight: 1}, {name: b}]}]}",
			"spec: {rules: [{backendRefs: [{name: a, weight: 9}, {name: b}]}]}",
			"spec.rules[0].backendRefs[0].weight: 1 -> 9",
		},
		"a rule before others": {
			"spec: {hostnames: [b, c]}", "spec: {hostnames: [a, b, c]}", `spec.hostnames[0]:  -> "a"`,
		},
		"a rule that went": {"spec: {hostnames: [a, b, c]}", "spec: {hostnames: [a, c]}", `spec.hostnames[1]: "b" -> `},
		"created":          {"", "metadata: {name: x, uid: 7}\nspec: {a: 1, b: {c: 2}}", "spec.a:  -> 1\nspec.b.c:  -> 2"},
		"deleted":          {"spec: {a: 1}", "", "spec.a: 1 -> "},
		"status":           {"spec: {a: 1}\nstatus: {x: 1}", "spec: {a: 1}\nstatus: {x: 2}", ""},
		"who, and what kubectl keeps": {
			"metadata: {annotations: {fairlead.dev/changed-by: a, kubectl.kubernetes.io/last-applied-configuration: x}}",
			"metadata: {annotations: {fairlead.dev/changed-by: b, kubectl.kubernetes.io/last-applied-configuration: y}}", "",
		},
		"labels": {
			"metadata: {labels: {a: b}, generation: 1}", "metadata: {labels: {a: c}, annotations: {x/y: z}, generation: 2}",
			"metadata.annotations[\"x/y\"]:  -> \"z\"\nmetadata.labels[\"a\"]: \"b\" -> \"c\"",
		},
		"data": {"data: {tls.key: c2VjcmV0}", "data: {tls.key: c2VjcmV1}", "data: (data) -> (data)"},
		"a credential": {
			"spec: {filters: [{set: [{name: Authorization, value: Bearer s3cret}]}]}",
			"spec: {filters: [{set: [{name: Authorization, value: Bearer s3cres}]}]}",
			"spec.filters[0].set[0].value: (redacted) -> (redacted)",
		},
		"a credential in a new rule": {
			"spec: {rules: []}", "spec: {rules: [{set: [{name: X-Api-Key, value: s3cret}]}]}",
			`spec.rules[0]:  -> {"set":[{"name":"X-Api-Key","value":"(redacted)"}]}`,
		},
		"another type": {"spec: {a: {b: 1}}", "spec: {a: [1]}", `spec.a: {"b":1} -> [1]`},
	} {
		t.Run(name, func(t *testing.T) {
			fields, more := Diff(object(t, c.before), object(t, c.after))
			var lines []string
			for _, f := range fields {
				lines = append(lines, f.Path+": "+f.Old+" -> "+f.New)
			}
			if got := strings.Join(lines, "\n"); got != c.want || more != 0 {
				t.Errorf("got\n%s\nand %d more, want\n%s", got, more, c.want)
			}
		})
	}
}

// TestSecretsStayOutside holds that nothing of data and of credentials is in a Diff, however large the objects are, and that a
// Diff is bounded.
func TestSecretsStayOutside(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var value func(deep int) any
	value = func(deep int) any {
		switch n := random.IntN(6); {
		case n == 0 || deep == 0:
			return strings.Repeat("long\u202e", random.IntN(200))
		case n == 1:
			return map[string]any{"name": []string{"authorization", "Cookie", "x-api-key", "My-Token"}[random.IntN(4)], "value": "s3cret"}
		case n < 4:
			var list []any
			for range random.IntN(5) {
				list = append(list, value(deep-1))
			}
			return list
		default:
			m := map[string]any{}
			for range random.IntN(8) {
				m[fmt.Sprint("f", random.IntN(99))] = value(deep - 1)
			}
			return m
		}
	}
	for range 100 {
		a := map[string]any{"data": map[string]any{"k": "s3cret"}, "spec": value(4)}
		b := map[string]any{"binaryData": map[string]any{"k": "s3cret"}, "spec": value(4)}
		for _, pair := range [][2]map[string]any{{a, b}, {nil, a}, {a, nil}} {
			fields, _ := Diff(pair[0], pair[1])
			if len(fields) > maxFields {
				t.Fatalf("%d fields", len(fields))
			}
			for _, f := range fields {
				if strings.Contains(f.Old+f.New+f.Path, "s3cret") || len(f.Path) > maxPath || len(f.Old) > maxValue || len(f.New) > maxValue {
					t.Fatalf("a field is %+v", f)
				}
			}
		}
	}
}

func change(name, version string, rev uint64) Entry {
	e := Entry{Change: model.Change{
		At: time.Unix(1000, 0).UTC(), Revision: rev, Who: "alice", Verb: model.ChangeChanged,
		Object: model.Object{Kind: "HTTPRoute", Namespace: "team", Name: name},
	}, Version: version}
	if rev > 0 {
		e.Epoch = 1
	}
	return e
}

var oneField = []model.FieldChange{{Path: "spec.a", Old: "1", New: "2"}}

func names(l *Log) (names []string) {
	for _, c := range l.List() {
		names = append(names, c.Object.Name)
	}
	return names
}

func TestLogIsBounded(t *testing.T) {
	l := New(100_000)
	for i := range 3 * MaxEntries {
		l.Describe(l.Add(change(fmt.Sprint(i), fmt.Sprint(i), uint64(i+1))), oneField, 0)
		if l.bytes > l.bound || len(l.entries) > MaxEntries {
			t.Fatalf("%d entries of %d bytes", len(l.entries), l.bytes)
		}
	}
	if got := names(l); got[0] != "2999" || len(got) < 100 {
		t.Errorf("%d entries, the first is %s", len(got), got[0])
	}
	sum := 0
	for _, e := range l.entries {
		sum += sizeOf(e)
	}
	if sum != l.bytes {
		t.Errorf("it counts %d bytes of %d", l.bytes, sum)
	}
	l = New(MaxBytes)
	for i := range 3 * MaxEntries {
		l.Describe(l.Add(change(fmt.Sprint(i), "", 0)), oneField, 0)
	}
	if len(l.entries) != MaxEntries {
		t.Errorf("%d entries", len(l.entries))
	}
}

func TestReached(t *testing.T) {
	l := New(MaxBytes)
	for i := range 3 {
		l.Describe(l.Add(change(fmt.Sprint(i), fmt.Sprint(i), uint64(i))), oneField, 0)
	}
	at := time.Unix(1001, 0).UTC()
	if !l.Reached("edge-1", []delta.Revision{{Epoch: 1, Number: 2}, {Epoch: 1, Number: 0}}, at) {
		t.Error("nothing is reached")
	}
	if l.Reached("edge-1", []delta.Revision{{Epoch: 1, Number: 2}}, at.Add(time.Second)) || l.Reached("edge-2", []delta.Revision{{Epoch: 2, Number: 2}}, at) {
		t.Error("it is reached again, or in another epoch")
	}
	list := l.List()
	if want := []model.MachineTime{{Machine: "edge-1", At: at}}; !reflect.DeepEqual(list[0].Machines, want) || len(list[1].Machines)+len(list[2].Machines) > 0 {
		t.Errorf("got %+v", list)
	}
}

// TestRestart: a plane that takes over has what the plane before has kept, and after it what only it has seen.
func TestRestart(t *testing.T) {
	before, after := New(MaxBytes), New(MaxBytes)
	var records [][]byte
	for i := range 4 {
		n := before.Add(change(fmt.Sprint(i), fmt.Sprint(i), uint64(i+1)))
		if i == 3 {
			break // nobody has described it
		}
		before.Describe(n, oneField, 0)
		records = append(records, before.Unsaved()...)
	}
	before.Reached("edge-1", []delta.Revision{{Epoch: 1, Number: 2}}, time.Unix(1002, 0).UTC())
	records = append(records, before.Unsaved()...)
	if len(records) != 4 || len(before.Unsaved()) != 0 {
		t.Fatalf("%d records", len(records))
	}
	var pending uint64
	for _, i := range []int{1, 2, 3} { // it saw them too, as a standby
		pending = after.Add(change(fmt.Sprint(i), fmt.Sprint(i), 0))
		if i < 3 {
			after.Describe(pending, oneField, 0)
		}
	}
	after.Lead(delta.Revision{Epoch: 2, Number: 1})
	entries, err := Read(records)
	if err != nil {
		t.Fatal(err)
	}
	renumbered := after.Prepend(entries)
	after.Describe(renumbered(pending), oneField, 0)
	if got := names(after); !slices.Equal(got, []string{"3", "2", "1", "0"}) {
		t.Errorf("got %v", got)
	}
	list := after.List()
	if list[0].Epoch != 2 || list[0].Revision != 1 || list[2].Epoch != 1 || list[2].Revision != 2 || len(list[2].Machines) != 1 {
		t.Errorf("got %+v", list)
	}
	for i := range list[:3] {
		if list[i].Number <= list[i+1].Number {
			t.Errorf("number %d is before %d", list[i].Number, list[i+1].Number)
		}
	}
	if _, err := Read([][]byte{[]byte("{")}); err == nil {
		t.Error("half a record is read")
	}
	again, err := Read(after.Records())
	if err != nil || len(again) != 4 {
		t.Errorf("%d records, %v", len(again), err)
	}
}

// TestNoChange: an object that is written without a difference is none.
func TestNoChange(t *testing.T) {
	l := New(MaxBytes)
	l.Describe(l.Add(change("a", "1", 1)), nil, 0)
	if got := l.List(); len(got) != 0 || l.bytes != 0 {
		t.Errorf("got %+v of %d bytes", got, l.bytes)
	}
	l.Add(change("a", "2", 2))
	if got := l.List(); len(got) != 0 {
		t.Errorf("it is listed without its diff: %+v", got)
	}
}
