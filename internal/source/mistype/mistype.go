// Package mistype finds values of objects that have another type than their fields, and takes them out, so that
// what fits can be read. The decoder says of one of them alone, in words of Go and without its place.
//
// It does not judge what a value means.
//
// Invariant: what Prune leaves of an object can be decoded.
package mistype

import (
	"bytes"
	"encoding"
	"encoding/base64"
	gojson "encoding/json"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Mistype is a value of another type than its field has.
type Mistype struct {
	Steps       []string // to the field: "spec", "ports", "[0]"
	Want, Found string   // in words
}

// String is "spec.ports[0].port: want a whole number, found the text "eighty"".
func (m Mistype) String() string {
	path := ""
	for i, s := range m.Steps {
		switch {
		case strings.Contains(s, "."):
			s = "[" + s + "]"
		case i > 0 && !strings.HasPrefix(s, "["):
			s = "." + s
		}
		path += s
	}
	if path != "" {
		path += ": "
	}
	return path + "want " + m.Want + ", found " + m.Found
}

// Find returns the values in an object's text (JSON) that do not fit its type, in the order of its fields; none where the
// text is no JSON.
func Find(encoded []byte, object any) []Mistype {
	value, err := decode(encoded)
	if err != nil {
		return nil
	}
	return find(value, object)
}

// Prune takes the values that do not fit out of an object's value, and returns them. A list keeps its length: null stands there.
func Prune(value map[string]any, object any) []Mistype {
	found := find(value, object)
	for _, m := range found {
		remove(value, m.Steps)
	}
	return found
}

func decode(encoded []byte) (value any, err error) {
	d := gojson.NewDecoder(bytes.NewReader(encoded))
	d.UseNumber()
	return value, d.Decode(&value)
}

func find(value, object any) []Mistype {
	_, secret := object.(*corev1.Secret)
	f := fitter{hides: secret}
	f.fit(nil, value, reflect.TypeOf(object))
	return f.found
}

// remove takes out the value at a path that find has walked; of a list it is null then.
func remove(value any, steps []string) {
	for i, step := range steps {
		last := i == len(steps)-1
		switch at := value.(type) {
		case map[string]any:
			if last {
				delete(at, step)
			}
			value = at[step]
		case []any:
			n, err := strconv.Atoi(strings.Trim(step, "[]"))
			if err != nil || n >= len(at) {
				return
			}
			if last {
				at[n] = nil
			}
			value = at[n]
		default:
			return
		}
	}
}

type fitter struct {
	found []Mistype
	hides bool // what data and stringData are: passwords and keys
}

func (f *fitter) want(steps []string, value any, want, hint string) {
	found := describe(value)
	if f.hides && len(steps) > 0 && strings.HasSuffix(strings.ToLower(steps[0]), "data") {
		found = kindOf(value)
	}
	f.found = append(f.found, Mistype{slices.Clone(steps), want, found + hint})
}

// wanted are the types that decode themselves.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[intstr.IntOrString](): "a whole number or a text",
	reflect.TypeFor[metav1.Time]():        `a time such as "2026-01-02T15:04:05Z"`,
	reflect.TypeFor[metav1.MicroTime]():   `a time such as "2026-01-02T15:04:05.000000Z"`,
	reflect.TypeFor[metav1.Duration]():    `a duration such as "10s"`,
	reflect.TypeFor[resource.Quantity]():  `an amount such as "1Gi"`,
}

const (
	inQuotes  = ": put it into quotes"
	noQuotes  = ": write it without quotes"
	inOwnData = ": a text as it is belongs into stringData"
)

// fit compares a value with a type. null fits every one.
func (f *fitter) fit(steps []string, value any, t reflect.Type) {
	if value == nil {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if into := reflect.New(t); into.Type().Implements(reflect.TypeFor[gojson.Unmarshaler]()) {
		text, err := gojson.Marshal(value)
		if err == nil && gojson.Unmarshal(text, into.Interface()) == nil {
			return
		}
		want := wanted[t]
		if want == "" {
			want = "a value of type " + t.Name()
		}
		f.want(steps, value, want, "")
		return
	} else if u, is := into.Interface().(encoding.TextUnmarshaler); is {
		if text, is := value.(string); !is || u.UnmarshalText([]byte(text)) != nil {
			f.want(steps, value, "a value of type "+t.Name(), "")
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		f.fields(steps, value, t)
	case reflect.Map:
		object, is := value.(map[string]any)
		if !is {
			f.want(steps, value, "fields", "")
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			f.fit(append(slices.Clip(steps), name), object[name], t.Elem())
		}
	case reflect.Slice, reflect.Array:
		f.list(steps, value, t)
	case reflect.String:
		if _, is := value.(string); !is {
			f.want(steps, value, "a text", hintIf(isScalar(value), inQuotes))
		}
	case reflect.Bool:
		if _, is := value.(bool); !is {
			text, _ := value.(string)
			f.want(steps, value, "true or false", hintIf(text == "true" || text == "false", noQuotes))
		}
	case reflect.Float32, reflect.Float64:
		f.number(steps, value, "a number", func(s string) bool { return parses(strconv.ParseFloat(s, t.Bits())) })
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.number(steps, value, wholeText(t, value), func(s string) bool { return parses(strconv.ParseInt(s, 10, t.Bits())) })
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		f.number(steps, value, wholeText(t, value), func(s string) bool { return parses(strconv.ParseUint(s, 10, t.Bits())) })
	}
}

// fields compares an object with a struct. A field that the struct does not have is none of its business.
func (f *fitter) fields(steps []string, value any, t reflect.Type) {
	object, is := value.(map[string]any)
	if !is {
		f.want(steps, value, "fields", "")
		return
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case field.Anonymous && name == "":
			f.fit(steps, value, field.Type)
		default:
			if name == "" {
				name = field.Name
			}
			f.fit(append(slices.Clip(steps), name), object[name], field.Type)
		}
	}
}

func (f *fitter) list(steps []string, value any, t reflect.Type) {
	if t.Elem().Kind() == reflect.Uint8 {
		text, is := value.(string)
		if _, err := base64.StdEncoding.DecodeString(text); !is || err != nil {
			f.want(steps, value, "base64", hintIf(is, inOwnData))
		}
		return
	}
	items, is := value.([]any)
	if !is {
		f.want(steps, value, "a list", "")
		return
	}
	for i, item := range items {
		f.fit(append(slices.Clip(steps), "["+strconv.Itoa(i)+"]"), item, t.Elem())
	}
}

func (f *fitter) number(steps []string, value any, want string, fits func(string) bool) {
	switch v := value.(type) {
	case gojson.Number:
		if !fits(v.String()) {
			f.want(steps, value, want, "")
		}
	case string:
		f.want(steps, value, want, hintIf(fits(v), noQuotes))
	default:
		f.want(steps, value, want, "")
	}
}

// wholeText says which numbers fit, with their bounds where a whole number does not.
func wholeText(t reflect.Type, value any) string {
	n, _ := value.(gojson.Number)
	if _, whole := new(big.Int).SetString(n.String(), 10); !whole {
		return "a whole number"
	}
	least, most := "0", strconv.FormatUint(math.MaxUint64>>(64-t.Bits()), 10)
	if t.Kind() < reflect.Uint {
		least, most = strconv.FormatInt(math.MinInt64>>(64-t.Bits()), 10), strconv.FormatInt(math.MaxInt64>>(64-t.Bits()), 10)
	}
	return "a whole number from " + least + " to " + most
}

func parses[T any](_ T, err error) bool { return err == nil }

func hintIf(is bool, hint string) string {
	if is {
		return hint
	}
	return ""
}

func isScalar(value any) bool {
	switch value.(type) {
	case bool, gojson.Number:
		return true
	}
	return false
}

// describe says what a value is.
func describe(value any) string {
	switch v := value.(type) {
	case string:
		const most = 40
		if utf8.RuneCountInString(v) > most {
			return "the text " + strconv.Quote(string([]rune(v)[:most])) + "..."
		}
		return "the text " + strconv.Quote(v)
	case gojson.Number:
		return "the number " + v.String()
	case bool:
		return strconv.FormatBool(v)
	default:
		return kindOf(value)
	}
}

// kindOf is describe without the value itself.
func kindOf(value any) string {
	switch value.(type) {
	case string:
		return "a text"
	case gojson.Number:
		return "a number"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	default:
		return "fields"
	}
}
