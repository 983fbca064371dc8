package model

import "testing"

func TestWordsOfObjects(t *testing.T) {
	for want, o := range map[string]Object{
		"Service team/web":   {Kind: "Service", Namespace: "team", Name: "web"},
		"Machine edge-1":     {Kind: "Machine", Name: "edge-1"},
		"all Routes":         {Kind: "Route"},
		"all Routes of team": {Kind: "Route", Namespace: "team"},
		`the Services that share "web" of namespace team`: SharingServices("team", "web"),
		"the root IngressRoutes that share an address":    SharingIngressRoutes(),
	} {
		if got := o.Describe(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
