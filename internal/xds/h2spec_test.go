package xds_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// deviations are the cases of h2spec that Envoy 1.40 answers in its own way, and which. None
// is a request that is taken for another; a flood of such frames ends the connection
// (TestFloods).
var deviations = map[string]string{
	"http2/5.1 closed: Sends a DATA frame after sending RST_STREAM frame":                                            frameIgnored,
	"http2/5.1 closed: Sends a HEADERS frame after sending RST_STREAM frame":                                         frameIgnored,
	"http2/5.1 closed: Sends a DATA frame":                                                                           frameIgnored,
	"http2/5.1 closed: Sends a HEADERS frame":                                                                        frameIgnored,
	"http2/5.1.1 Sends stream identifier that is numerically smaller than previous":                                  frameIgnored,
	"http2/5.3.1 Sends PRIORITY frame that depend on itself":                                                         frameIgnored + ": RFC 9113 has no priorities any more",
	"http2/6.3 Sends a PRIORITY frame with 0x0 stream identifier":                                                    frameIgnored + ": RFC 9113 has no priorities any more",
	"http2/5.4.1 Sends an invalid PING frame to receive GOAWAY frame":                                                "the connection is closed without saying why",
	"http2/6.9.1 Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1":             "nothing is said before the connection is closed",
	"http2/6.9.1 Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream": "nothing is said before the stream is closed",
	"http2/7 Sends a GOAWAY frame with unknown error code":                                                           "a client that said goodbye gets no answer to its PING",
	"generic/3.8 Sends a GOAWAY frame":                                                                               "a client that said goodbye gets no answer to its PING",
}

const (
	frameIgnored = "the frame is ignored, not an error"
	// A connection that does not begin as HTTP/2 is taken for HTTP/1.1, and refused in its
	// words. Over TLS the protocol is agreed before.
	prefaceCase = "http2/3.5 Sends invalid connection preface"
)

// parts of h2spec run side by side: some cases pass by nothing happening for a while.
var parts = strings.Fields("generic hpack http2/3.5 http2/4 http2/5.1/1 http2/5.1/2 http2/5.1/3 http2/5.1/4 http2/5.1/5 http2/5.1/6 http2/5.1/7 http2/5.1/8 http2/5.1/9 " +
	"http2/5.1/10 http2/5.1/11 http2/5.1/12 http2/5.1/13 http2/5.1.1 http2/5.1.2 http2/5.3 http2/5.4 http2/5.5 " +
	"http2/6.1 http2/6.2 http2/6.3 http2/6.4 http2/6.5 http2/6.7 http2/6.8 http2/6.9 http2/6.10 http2/7 http2/8.1 http2/8.2")

// h2specReport is what h2spec writes for JUnit.
type h2specReport struct {
	Suites []struct {
		Package string `xml:"package,attr"`
		Cases   []struct {
			Name    string    `xml:"classname,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// TestHTTP2Specification has h2spec judge a listener for clear text and one with TLS.
func TestHTTP2Specification(t *testing.T) {
	tool, err := exec.LookPath("h2spec")
	if err != nil {
		root, _ := filepath.Abs("../..")
		tool = filepath.Join(root, ".tools", "bin", "h2spec")
		if _, err := os.Stat(tool); err != nil {
			t.Fatal("no h2spec: run tools/setup.sh h2spec")
		}
	}
	w := newWorld(t)
	c := newCA(t)
	w.group("ns/app/1", w.backend("app"))
	// h2spec sends its address as the host, and no server name.
	clear := model.Listener{ID: "http-1_ns_gw", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.listen(clear, xds.Options{}, host(clear.ID, "*", forward("r", "/", "ns/app/1", 1)))
	secure := model.Listener{ID: "https-1_ns_gw", Port: freePort(t), Protocol: model.ProtocolHTTPS}
	w.set(xds.Secret(xds.SecretName("t/any"), c.issue("t/any", false, "a.test")))
	w.tlsListen(secure, xds.Options{}, []xds.TLSHost{tlsHost(secure.ID, "*", "t/any")}, section("*", host(secure.ID, "*", forward("r", "/", "ns/app/1", 1))))
	w.routed(secure.ID)

	for _, l := range []struct {
		name string
		port uint16
		args []string
	}{{"clear text", clear.Port, nil}, {"TLS", secure.Port, []string{"--tls", "--insecure"}}} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			passed, plain := 0, len(l.args) == 0
			var running sync.WaitGroup
			for _, part := range parts {
				running.Go(func() {
					out, report := h2spec(t, tool, part, l.port, l.args...)
					mu.Lock()
					defer mu.Unlock()
					passed += report.check(t, out, plain)
				})
			}
			running.Wait()
			want := 146 - len(deviations)
			if plain {
				want--
			}
			if passed != want {
				t.Errorf("%d cases passed, want %d: were some not tried?", passed, want)
			}
		})
	}
}

// h2spec runs a part of h2spec.
func h2spec(t *testing.T, tool, part string, port uint16, args ...string) (string, h2specReport) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.xml")
	args = append([]string{part, "--strict", "--timeout", "3", "--port", fmt.Sprint(port), "--junit-report", file}, args...)
	out, _ := exec.CommandContext(t.Context(), tool, args...).CombinedOutput() // its status says whether anything failed
	var report h2specReport
	body, err := os.ReadFile(file)
	if err == nil {
		err = xml.Unmarshal(bytes.ReplaceAll(body, []byte{0}, nil), &report) // it writes what it saw as it is
	}
	if err != nil {
		t.Errorf("h2spec %s: %v\n%s", part, err, out)
	}
	return string(out), report
}

// check compares a report with what is known, and returns how many cases passed.
func (r h2specReport) check(t *testing.T, out string, plain bool) (passed int) {
	t.Helper()
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			name := s.Package + " " + c.Name
			failed := c.Failure != nil || c.Error != nil
			_, known := deviations[name]
			known = known || plain && name == prefaceCase
			switch {
			case c.Skipped != nil:
				t.Errorf("%s was skipped", name)
			case failed && !known:
				t.Errorf("%s fails:\n%s", name, out)
			case !failed && known:
				t.Errorf("%s is all right now", name)
			case !failed:
				passed++
			}
		}
	}
	return passed
}
