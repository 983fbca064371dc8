package changes

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/tap"
)

// Stamp is the annotation in which the API says who wrote an object last.
const Stamp = "fairlead.dev/changed-by"

// Bounds of a Diff.
const (
	maxFields = 50
	maxPath   = 256 // bytes
	maxValue  = 200 // bytes
	// unfold is how deep a value is shown field by field when the whole of it is new or gone.
	unfold = 2
)

const (
	redacted = "(redacted)"
	some     = "(data)"
)

// shownMetadata are the fields of metadata that users write and that may matter to machines.
var shownMetadata = []string{"annotations", "labels"}

// hidden are annotations that are left out: the first is shown as who, the other one repeats the object.
var hidden = []string{Stamp, "kubectl.kubernetes.io/last-applied-configuration"}

// Diff says in which fields an object differs, before and after; nil is an object that is not there. Fields beyond the bound
// are counted only. The status is left out. Of data it says only that they changed.
func Diff(before, after map[string]any) (fields []model.FieldChange, more int) {
	d := differ{}
	for _, k := range keysOf(before, after) {
		b, a := before[k], after[k]
		switch k {
		case "apiVersion", "kind", "status":
		case "metadata":
			d.metadata(mapOf(b), mapOf(a))
		case "data", "binaryData", "stringData":
			if !reflect.DeepEqual(b, a) {
				d.add(k, hide(b), hide(a))
			}
		default:
			d.value(k, b, a, unfold)
		}
	}
	return d.fields, d.more
}

func mapOf(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func keysOf(a, b map[string]any) []string {
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, both := a[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func hide(v any) any {
	if v == nil {
		return nil
	}
	return hiddenText(some)
}

// hiddenText stands for a value that is not shown.
type hiddenText string

type differ struct {
	fields []model.FieldChange
	more   int
}

func (d *differ) metadata(before, after map[string]any) {
	for _, part := range shownMetadata {
		b, a := mapOf(before[part]), mapOf(after[part])
		for _, k := range keysOf(b, a) {
			if slices.Contains(hidden, k) || reflect.DeepEqual(b[k], a[k]) {
				continue
			}
			d.add("metadata."+part+"["+strconv.Quote(k)+"]", b[k], a[k])
		}
	}
}

// value compares two values. deep is how many levels a value that is new or gone as a whole is still unfolded.
func (d *differ) value(path string, before, after any, deep int) {
	if reflect.DeepEqual(before, after) {
		return
	}
	b, bIs := before.(map[string]any)
	a, aIs := after.(map[string]any)
	switch {
	case bIs && aIs:
		d.fieldsOf(path, b, a, deep)
		return
	case deep > 0 && (bIs && after == nil || aIs && before == nil):
		d.fieldsOf(path, b, a, deep-1)
		return
	}
	bs, bIsList := before.([]any)
	as, aIsList := after.([]any)
	if bIsList && aIsList {
		d.list(path, bs, as, deep)
		return
	}
	d.add(path, before, after)
}

func (d *differ) fieldsOf(path string, before, after map[string]any, deep int) {
	for _, k := range keysOf(before, after) {
		b, a := before[k], after[k]
		if k == "value" && (isCredential(before) || isCredential(after)) {
			b, a = redact(b), redact(a)
			if !reflect.DeepEqual(before[k], after[k]) {
				d.add(path+"."+k, b, a)
			}
			continue
		}
		d.value(path+"."+k, b, a, deep)
	}
}

// list compares lists without what both begin and end with: an element more moves no other.
func (d *differ) list(path string, before, after []any, deep int) {
	from := 0
	for from < min(len(before), len(after)) && reflect.DeepEqual(before[from], after[from]) {
		from++
	}
	b, a := before[from:], after[from:]
	for len(b) > 0 && len(a) > 0 && reflect.DeepEqual(b[len(b)-1], a[len(a)-1]) {
		b, a = b[:len(b)-1], a[:len(a)-1]
	}
	for i := range max(len(b), len(a)) {
		var x, y any
		if i < len(b) {
			x = b[i]
		}
		if i < len(a) {
			y = a[i]
		}
		at := path + "[" + strconv.Itoa(from+i) + "]"
		if x == nil || y == nil {
			d.add(at, x, y)
			continue
		}
		d.value(at, x, y, deep)
	}
}

// isCredential says that an object of a list, with a name and a value, is a header or a parameter that is a credential.
func isCredential(m map[string]any) bool {
	name, is := m["name"].(string)
	return is && tap.IsCredential(name)
}

func redact(v any) any {
	if v == nil {
		return nil
	}
	return hiddenText(redacted)
}

// redactAll is a copy of a value in which no value of a credential is left.
func redactAll(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, x := range v {
			if k == "value" && isCredential(v) {
				c[k] = redacted
				continue
			}
			c[k] = redactAll(x)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, x := range v {
			c[i] = redactAll(x)
		}
		return c
	}
	return v
}

func (d *differ) add(path string, before, after any) {
	if len(d.fields) == maxFields {
		d.more++
		return
	}
	d.fields = append(d.fields, model.FieldChange{Path: cut(path, maxPath), Old: text(before), New: text(after)})
}

// text is a value as JSON, cut. Who shows it replaces the characters that terminals take for something else.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case hiddenText:
		return string(v)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a path with & reads as it was written
	if err := e.Encode(redactAll(v)); err != nil {
		return "(no JSON)"
	}
	return cut(strings.TrimSuffix(b.String(), "\n"), maxValue)
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most - len("...")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.Clone(s[:end]) + "..."
}
