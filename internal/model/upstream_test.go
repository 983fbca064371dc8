package model

import (
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// Every field of a service counts when two forms are compared, but for the times.
func TestSameService(t *testing.T) {
	endpoint := UpstreamEndpoint{Address: netip.MustParseAddr("10.0.0.1")}
	whole := func() *UpstreamService {
		return &UpstreamService{
			Ports: []UpstreamPort{{}}, Slices: []UpstreamSlice{{Ports: []UpstreamPort{{}}, Endpoints: []UpstreamEndpoint{endpoint}}}, Refused: []UpstreamRefusal{{}},
		}
	}
	parts := map[string]func(*UpstreamService) any{
		"service":       func(s *UpstreamService) any { return s },
		"key":           func(s *UpstreamService) any { return &s.Key },
		"port":          func(s *UpstreamService) any { return &s.Ports[0] },
		"slice":         func(s *UpstreamService) any { return &s.Slices[0] },
		"port of slice": func(s *UpstreamService) any { return &s.Slices[0].Ports[0] },
		"endpoint":      func(s *UpstreamService) any { return &s.Slices[0].Endpoints[0] },
		"refusal":       func(s *UpstreamService) any { return &s.Refused[0] },
	}
	for name, part := range parts {
		for i := range reflect.TypeOf(part(whole())).Elem().NumField() {
			s := whole()
			v := reflect.ValueOf(part(s)).Elem()
			field, f := v.Type().Field(i), v.Field(i)
			switch f.Interface().(type) {
			case time.Time, UpstreamKey:
				continue
			case netip.Addr:
				f.Set(reflect.ValueOf(netip.MustParseAddr("10.0.0.2")))
			default:
				switch f.Kind() {
				case reflect.String:
					f.SetString("x")
				case reflect.Bool:
					f.SetBool(true)
				case reflect.Uint16, reflect.Uint32:
					f.SetUint(7)
				case reflect.Map:
					f.Set(reflect.ValueOf(map[string]string{"a": "b"}))
				case reflect.Slice:
					f.Set(reflect.MakeSlice(f.Type(), 2, 2))
				default:
					t.Fatalf("%s.%s: a kind that the test does not know", name, field.Name)
				}
			}
			if s.Same(whole()) {
				t.Errorf("%s.%s does not count", name, field.Name)
			}
		}
	}
	s := whole()
	s.Changed, s.Seen = time.Unix(1, 0), time.Unix(2, 0)
	if !s.Same(whole()) {
		t.Error("times count")
	}
}
