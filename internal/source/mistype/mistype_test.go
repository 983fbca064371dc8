package mistype

import (
	"encoding/json"
	"fmt"
	"testing"
)

// route is as an IngressRoute, in part.
type route struct {
	Spec struct {
		VirtualHost *struct {
			Fqdn string                       `json:"fqdn,omitempty"`
			TLS  *struct{ SecretName string } `json:"tls,omitempty"`
		} `json:"virtualhost,omitempty"`
		Routes []struct {
			Match    string `json:"match"`
			Services []struct {
				Name string `json:"name"`
				Port int    `json:"port"`
			} `json:"services,omitempty"`
			RetryPolicy *struct {
				Count uint32 `json:"count,omitempty"`
			} `json:"retryPolicy,omitempty"`
		} `json:"routes"`
	} `json:"spec"`
}

// TestPrune holds that what is left of an object can be decoded, whatever stood in it, and that what fits stays.
func TestPrune(t *testing.T) {
	for _, c := range []struct {
		text, left string
		found      int
	}{
		{`{"spec":{"routes":[{"match":"/"}]}}`, `{"spec":{"routes":[{"match":"/"}]}}`, 0},
		{`{"spec":7}`, `{}`, 1},
		{`{"spec":{"virtualhost":{"fqdn":"a","tls":"x"},"routes":{"match":"/"}}}`, `{"spec":{"virtualhost":{"fqdn":"a"}}}`, 2},
		{`{"spec":{"routes":[1,{"match":"/a","services":[{"name":"a","port":"80"},null,"b"]},[]]}}`, `{"spec":{"routes":[null,{"match":"/a","services":[{"name":"a"},null,null]},null]}}`, 4},
		{`{"spec":{"unknown":[1],"routes":[{"retryPolicy":{"count":1e40}}]}}`, `{"spec":{"routes":[{"retryPolicy":{}}],"unknown":[1]}}`, 1},
	} {
		value, err := decode([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		found := Prune(value.(map[string]any), &route{})
		left, err := json.Marshal(value)
		if err != nil || string(left) != c.left || len(found) != c.found {
			t.Errorf("%s: %v, left %s, found %v; want %s, %d found", c.text, err, left, found, c.left, c.found)
		}
		if err := json.Unmarshal(left, &route{}); err != nil {
			t.Errorf("%s: %v", left, err)
		}
		if again := Prune(value.(map[string]any), &route{}); len(again) > 0 {
			t.Error(fmt.Sprint(again))
		}
	}
}
