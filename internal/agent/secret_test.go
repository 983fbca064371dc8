package agent

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/internal/gate/gatetest"
)

// TestPrivateKeysAreNotOnTheDisk: they are in the run directory, which is gone after a
// reboot. Then a listener that needs them waits for a plane; the others do not.
func TestPrivateKeysAreNotOnTheDisk(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	cert, ca := gatetest.Certificate(t, "certificate/t/a", "1"), gatetest.Authority(t, "authority/t/ca")
	clear, secure := gatetest.Listener(t, "http-80", "x"), gatetest.TLSListener(t, "https-443", cert.Name, "c1")
	world := append(whole(t, at(1, 1), 1)[:2], responseOf(t, at(1, 1), cert, ca), responseOf(t, at(1, 1), clear, secure), responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	boot := func() *asker {
		e := dialRelay(t, m)
		e.ask(typeCluster)
		e.until(gatetest.Cluster(t, "c1", "s1", 1))
		e.ask(typeEndpoint, "s1")
		e.until(gatetest.Endpoints(t, "s1", 1))
		e.ask(typeSecret, cert.Name, ca.Name)
		e.until(ca)
		e.ask(typeListener)
		e.until(clear)
		return e
	}
	_, stop := m.start()
	c, _ := p.call()
	c.must(t, world...)
	e := boot()
	e.until(secure)
	if got := e.has[key{typeSecret, cert.Name}]; got != cert.Resource.Version {
		t.Errorf("the certificate came as %q", got)
	}
	stop()

	if files := filesWith(t, m.config.DataDir, gatetest.PrivateKey); len(files) > 0 {
		t.Errorf("a private key is on the disk: %v", files)
	}
	if files := filesWith(t, m.config.DataDir, "an authority"); len(files) == 0 {
		t.Error("the authority is not on the disk")
	}
	files := filesWith(t, m.config.RunDir, gatetest.PrivateKey)
	if len(files) != 1 {
		t.Fatalf("the private key is in %v", files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode() != 0o600 {
		t.Errorf("%s: %v %v", files[0], info.Mode(), err)
	}

	// The agent alone starts anew.
	_, stop = m.start()
	p.call()
	boot().until(secure)
	stop()

	// The machine does.
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	for range 2 { // an agent that restarts meanwhile has no keys either
		a, stop := m.start()
		p.call()
		e = boot()
		if e.has[key{typeListener, secure.Name}] != "" {
			t.Error("a listener was given to Envoy without its key")
		}
		eventually(t, "it says why", func() bool {
			err := a.Readyz(t.Context())
			return err != nil && strings.Contains(err.Error(), "private key")
		})
		eventually(t, "VIPs of http-80 alone may be announced", func() bool {
			has := a.relay.listening(map[string]struct{}{"https-443": {}, "http-80": {}})
			_, clear := has["http-80"]
			return len(has) == 1 && clear
		})
		stop()
	}
	m.start()
	c, first := p.call()
	if held := first[typeSecret].GetInitialResourceVersions(); held[cert.Name] != "" || held[ca.Name] == "" {
		t.Errorf("it tells the plane that it holds %v", held)
	}
	e = boot()
	c.must(t, responseOf(t, at(1, 2), cert), responseOf(t, at(1, 2), checkpointAt(t, at(1, 2))))
	e.until(secure)
}

// filesWith are the files below a directory that hold a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		body, err := os.ReadFile(path)
		if bytes.Contains(body, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
