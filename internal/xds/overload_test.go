package xds_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestConnectionLimit: the machine's limit holds over all listeners, and not for the admin
// interface.
func TestConnectionLimit(t *testing.T) {
	w := newLimitedWorld(t, xds.BootstrapOptions{MaxConnections: 3})
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", says("a", prefix("/"))))
	w.eventually("the test's first connections are gone", func() error {
		var held []*client
		defer func() {
			for _, c := range held {
				c.Close()
			}
		}()
		for i := range 3 {
			c := dial(t, l.Port)
			held = append(held, c)
			if status, _, _ := c.ask(plainGet); status != 200 {
				return fmt.Errorf("connection %d: %d", i, status)
			}
		}
		c := dial(t, l.Port)
		defer c.Close()
		if status, _, _ := c.ask(plainGet); status != 0 {
			t.Errorf("one more connection: %d", status)
		}
		if _, err := w.envoy.Admin(w.ctx, http.MethodGet, "/ready"); err != nil {
			t.Errorf("admin interface: %v", err)
		}
		return nil
	})
}

// TestMemoryLimit: an Envoy beyond its memory does not serve, and says so to its agent.
func TestMemoryLimit(t *testing.T) {
	w := newLimitedWorld(t, xds.BootstrapOptions{HeapBytes: 1 << 20})
	w.eventually("every action is taken", func() error {
		body, err := w.envoy.Admin(w.ctx, http.MethodGet, "/stats?filter=overload.*active")
		if err != nil {
			return err
		}
		for _, name := range []string{"shrink_heap", "disable_http_keepalive", "stop_accepting_connections", "stop_accepting_requests"} {
			if !strings.Contains(body, "overload.envoy.overload_actions."+name+".active: 1") {
				return fmt.Errorf("no %s in\n%s", name, body)
			}
		}
		return nil
	})
}
