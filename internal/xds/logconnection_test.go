package xds_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestLinesOfConnections holds what lines of connections of bytes say, and that with errors only none has a line that reached a
// backend.
func TestLinesOfConnections(t *testing.T) {
	w := newWorld(t)
	w.group("ns/pass/1", w.tlsBackend(pair(t, newCA(t).issue("b", false, "pass.test"))))
	w.group("ns/dead/1", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t)))
	w.group("ns/none/1")
	served := func(name string, log *model.AccessLog) (model.Listener, string) {
		file := filepath.Join(t.TempDir(), "access.log")
		l := model.Listener{ID: model.ListenerID("https-" + name), Port: freePort(t), Protocol: model.ProtocolHTTPS, Clients: &model.ClientSettings{AccessLog: log}}
		var hosts []xds.TLSHost
		for host, group := range map[string]model.GroupID{"pass.test": "ns/pass/1", "dead.test": "ns/dead/1", "none.test": "ns/none/1", "broken.test": ""} {
			h := tlsHost(l.ID, host)
			h.TCP = []model.WeightedGroup{{Group: group, Weight: 1}}
			hosts = append(hosts, h)
		}
		w.tlsListen(l, xds.Options{AccessLog: file}, hosts)
		return l, file
	}
	all, allFile := served("all", &model.AccessLog{Fields: []string{"server_name", "group", "decision"}})
	errs, errsFile := served("errors", &model.AccessLog{Errors: true, Template: []model.LogPart{{Field: "server_name"}, {Text: " "}, {Field: "decision"}}})
	w.eventually("a connection through", func() error {
		_, err := shake(errs.Port, &tls.Config{InsecureSkipVerify: true, ServerName: "pass.test"})
		return err
	})
	for _, host := range []string{"pass.test", "dead.test", "none.test", "broken.test"} {
		for _, port := range []uint16{all.Port, errs.Port} {
			_, err := shake(port, &tls.Config{InsecureSkipVerify: true, ServerName: host})
			if (err == nil) != (host == "pass.test") {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
	want := map[string]string{
		"pass.test": "ns/pass/1 a backend was connected", "dead.test": "ns/dead/1 the backend cannot be reached",
		"none.test": "ns/none/1 no backend is available", "broken.test": "<nil> the backends are not known yet",
	}
	w.eventually("the lines", func() error {
		text, _ := os.ReadFile(allFile)
		got := map[string]string{}
		for line := range strings.Lines(string(text)) {
			var said map[string]any
			if json.Unmarshal([]byte(line), &said) == nil {
				got[fmt.Sprint(said["server_name"])] = fmt.Sprintf("%v %v", said["group"], said["decision"])
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("got  %v\nwant %v", got, want)
		}
		failed, _ := os.ReadFile(errsFile)
		if n := strings.Count(string(failed), "\n"); n != 3 || strings.Contains(string(failed), "pass.test") || !strings.Contains(string(failed), `dead.test "the backend cannot be reached"`+"\n") {
			return fmt.Errorf("errors only: %q", failed)
		}
		return nil
	})
}
