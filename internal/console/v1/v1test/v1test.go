// Package v1test holds the types that planes and agents answer with to those that
// package v1 declares: both have the same JSON.
package v1test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// depth is how deep types may contain themselves.
const depth = 8

// Same fails the test unless A and D have the same JSON, byte for byte: of their zero values, and of values in which each
// field has something of its own.
func Same[A, D any](t *testing.T) {
	t.Helper()
	var answer, full A
	same[A, D](t, answer)
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n, depth)
	same[A, D](t, full)
}

func same[A, D any](t *testing.T, answer A) {
	t.Helper()
	var declared D
	text, again := encode(t, answer), []byte(nil)
	if err := strict(text, &declared); err != nil {
		t.Fatalf("%T does not declare an answer: %v\n%s", declared, err, text)
	}
	if again = encode(t, declared); !bytes.Equal(text, again) {
		t.Fatalf("an answer is\n%s\nand %T makes it\n%s", text, declared, again)
	}
	var back A
	if err := strict(again, &back); err != nil {
		t.Fatalf("%T declares more than answers have: %v\n%s", declared, err, again)
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// fill gives every field a value that no other one has, as far as its type has so many.
func fill(v reflect.Value, n *int, depth int) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(int64(*n), 0).UTC()))
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(address(*n)))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(address(*n), uint16(*n))))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.PrefixFrom(address(*n), 32)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n, depth)
			}
		}
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), n, depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0), n, depth-1)
			fill(v.Index(1), n, depth-1)
		}
	case reflect.Map:
		if depth > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(k, n, depth-1)
			fill(e, n, depth-1)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		v.SetString("text " + time.Duration(*n).String())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(1) // of the few states that have words
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n) % 60000)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Float64, reflect.Float32:
		v.SetFloat(float64(*n) / 2)
	}
}

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}) }
