package xds_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestOwnListener: a Gateway's listener takes its own addresses, some of which the machine
// does not have yet, next to the listener of all addresses at the same port; each has its
// own hosts. When it goes, the shared one is as before.
func TestOwnListener(t *testing.T) {
	w := newWorld(t)
	shared := model.Listener{ID: "http-80", Port: freePort(t), Protocol: model.ProtocolHTTP}
	own := model.Listener{ID: "http-80_ns_gw", Port: shared.Port, Protocol: model.ProtocolHTTP, Addresses: []netip.Addr{
		netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7"),
	}}
	if !own.ID.Own() || xds.Shards(own.ID) >= xds.Shards(shared.ID) {
		t.Fatalf("%s has %d shards", own.ID, xds.Shards(own.ID))
	}
	w.listen(shared, xds.Options{}, host(shared.ID, "a.test", says("shared", prefix("/"))), host(shared.ID, "b.test", says("shared b", prefix("/"))))
	w.listen(own, xds.Options{}, host(own.ID, "a.test", says("own", prefix("/"))), host(own.ID, "*", says("own any", prefix("/"))))
	ask := func(address, host string) (answer, error) {
		transport := &http.Transport{DisableKeepAlives: true}
		return fetchWith(transport, "http://"+net.JoinHostPort(address, fmt.Sprint(shared.Port))+"/", host, nil)
	}
	wants := func(address, host string, status int, body string) {
		t.Helper()
		for range 20 { // whichever socket the kernel picks
			a, err := ask(address, host)
			if err != nil || a.status != status || body != "" && a.body != body {
				t.Fatalf("%s at %s: %d %q %v, want %d %q", host, address, a.status, a.body, err, status, body)
			}
		}
	}
	w.eventually("the own listener's second address", func() error {
		a, err := ask("127.0.0.3", "a.test")
		if err == nil && a.body != "own" {
			err = fmt.Errorf("%q", a.body)
		}
		return err
	})
	for _, address := range []string{"127.0.0.2", "127.0.0.3"} {
		wants(address, "a.test", 200, "own")
		wants(address, "b.test", 200, "own any")
	}
	for _, address := range []string{"127.0.0.1", "::1", "127.0.0.4"} {
		wants(address, "a.test", 200, "shared")
		wants(address, "b.test", 200, "shared b")
		wants(address, "c.test", 404, "")
	}
	w.ads.Remove(ldsURL, string(own.ID))
	w.eventually("the own listener is gone", func() error {
		a, err := ask("127.0.0.2", "c.test")
		if err == nil && a.status != 404 {
			err = fmt.Errorf("%d %q", a.status, a.body)
		}
		return err
	})
	wants("127.0.0.1", "a.test", 200, "shared")
}
