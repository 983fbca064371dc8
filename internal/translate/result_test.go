package translate

import (
	"reflect"
	"testing"
)

func TestEmptyLooksAtEachField(t *testing.T) {
	if c := (Changes{}); !c.Empty() {
		t.Error("no changes are not empty")
	}
	for i := range reflect.TypeFor[Changes]().NumField() {
		var c Changes
		field := reflect.ValueOf(&c).Elem().Field(i)
		field.Set(reflect.MakeMap(field.Type()))
		if !c.Empty() {
			t.Errorf("an empty map of %s is a change", reflect.TypeFor[Changes]().Field(i).Name)
		}
		field.SetMapIndex(reflect.Zero(field.Type().Key()), reflect.Zero(field.Type().Elem()))
		if c.Empty() {
			t.Errorf("a change of %s goes unnoticed", reflect.TypeFor[Changes]().Field(i).Name)
		}
	}
}
