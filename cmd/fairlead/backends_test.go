package main

import "testing"

func TestOwnersHaveANamespace(t *testing.T) {
	for name, want := range map[string]string{
		"web": "team/web", "shop/web": "shop/web", "tcp://192.0.2.1:80": "tcp://192.0.2.1:80", "192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1",
		"Gateway shop/web": "Gateway shop/web",
	} {
		if got := ownerOf(name, "team"); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
