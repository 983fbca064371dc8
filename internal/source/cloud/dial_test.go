package cloud

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairlead.dev/api/v1alpha1"
)

// Nothing is sent to the plane's own machine or link, unless that is allowed.
func TestOwnAddresses(t *testing.T) {
	const refused = "loopback, link-local and multicast addresses are refused: --upstream-allow does not name loopback"
	for address, want := range map[string]string{
		"127.0.0.1:443":          refused,
		"127.1.2.3:443":          refused,
		"[::1]:443":              refused,
		"[::ffff:127.0.0.1]:443": refused,
		"0.0.0.0:443":            refused,
		"[::]:443":               refused,
		"169.254.169.254:80":     refused,
		"[fe80::1%eth0]:443":     refused,
		"224.0.0.1:443":          refused,
		"[ff02::1]:443":          refused,
		"10.0.0.1:443":           "",
		"[fd00::1]:443":          "",
		"192.0.2.1:443":          "",
	} {
		got := ""
		if err := refuseOwn(address); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}

	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(s.Close)
	for _, address := range []string{s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)} {
		tr := NewTransport(NewBase(nil, Allow{}), TransportConfig{})
		_, _, _, err := ask(t.Context(), t, tr, address)
		if err == nil || ReasonOf(err) != v1alpha1.ReasonUnreachable || !strings.Contains(err.Error(), refused) || asked > 0 {
			t.Errorf("%s, %d requests: %v", address, asked, err)
		}
	}
	conn, err := Dialer(time.Minute, Allow{Loopback: true}).DialContext(context.Background(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
