package seeing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/dashboard"
	"fairlead.dev/lab/rig"
)

// fault is the cause of some alerts, and what ends it.
type fault struct {
	name        string
	alerts      []string
	cause, mend func(t *testing.T)
}

// faults come one after the other; what does not disturb each other comes together.
func (s *site) faults() []fault {
	var stop func()
	var squatter net.Listener
	var identity []byte
	edge2 := s.Lab.Machine("edge-2")
	state := func() string { return filepath.Join(s.Lab.State().Dir(), "machines", "edge-2", "agent", "filler") }
	return []fault{
		{
			"services",
			[]string{"FairleadErrors", "FairleadBackendsUnhealthy", "FairleadPanic", "FairleadPacketsDropped", "FairleadCertificateExpires", "FairleadUpstreamNotRead", "FairleadResourcesRefused", "FairleadStateNotStored", "FairleadSlow"},
			func(t *testing.T) {
				stop = s.traffic(t, "/bad", "/slow", "/slow", "/slow")
				if err := s.mortal.Close(); err != nil {
					t.Fatal(err)
				}
				s.certificate(t, 5*24*time.Hour)
				s.cloud.Kill9()
				var err error
				if squatter, err = edge2.Listen(t.Context(), "tcp", ":8088"); err != nil {
					t.Fatal(err)
				}
				if err := fill(state()); err != nil {
					t.Fatal(err)
				}
				s.apply(t, gateway(8088), padding)
			},
			func(t *testing.T) {
				stop()
				s.certificate(t, 60*24*time.Hour)
				if err := errors.Join(squatter.Close(), os.Remove(state())); err != nil {
					t.Fatal(err)
				}
				s.runCloud(t)
				s.startMortal(t)
				s.apply(t, gateway(8089))
			},
		},
		{
			"network and proxies",
			[]string{"FairleadBGPSessionDown", "FairleadVIPNotAnnounced", "FairleadRevisionNotApplied"},
			func(t *testing.T) {
				s.router.Kill()
				s.signalEnvoy(t, "edge-1", unix.SIGSTOP)
				s.apply(t, gateway(8090))
			},
			func(t *testing.T) {
				s.signalEnvoy(t, "edge-1", unix.SIGCONT)
				s.startRouter(t)
			},
		},
		{
			"machines",
			[]string{"FairleadProxyRestarts", "FairleadMachineLost", "FairleadScrapeMissing"},
			func(t *testing.T) {
				s.agents["edge-2"].Process.Kill9()
				for range 4 { // one more than it takes, on a busy machine
					s.restartEnvoy(t, "edge-1")
				}
			},
			func(t *testing.T) {
				if err := s.agents["edge-2"].Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			"the certificate of a machine",
			[]string{"FairleadMachineCertificateExpires"},
			func(t *testing.T) { identity = s.shorten(t, "edge-2", 6*time.Hour) },
			func(t *testing.T) { s.identify(t, "edge-2", identity) },
		},
		{
			"API",
			[]string{"FairleadSourceFailing"},
			func(*testing.T) { s.api.Kill9() },
			s.runAPI,
		},
		{
			"planes",
			[]string{"FairleadNoLeader", "FairleadAgentWithoutPlane"},
			func(*testing.T) {
				s.standby.Process.Kill9()
				s.plane.Process.Kill9()
			},
			func(t *testing.T) {
				if err := errors.Join(s.plane.Start(t.Context()), s.standby.Start(t.Context())); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
}

// padding is what a machine stores besides, so that it needs another page of its disk.
var padding = func() string {
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: more-%[1]d, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  hostnames: [more-%[1]d.example.com]
  rules: [{backendRefs: [{name: app, port: 80}]}]
`, i))
	}
	return strings.Join(all, "---\n")
}()

// alerts causes each alert, and ends it.
func (s *site) alerts(t *testing.T) {
	t.Helper()
	exprs := map[string]string{}
	for _, a := range dashboard.Alerts() {
		exprs[a.Name] = a.Expr
	}
	caused := map[string]bool{}
	for _, f := range s.faults() {
		for _, a := range f.alerts {
			caused[a] = true
		}
		if !t.Run(f.name, func(t *testing.T) {
			f.cause(t)
			s.awaitAlerts(t, f.name, func(firing map[string]bool) error {
				var missing []string
				for _, a := range f.alerts {
					if !firing[a] && !future(t, exprs[a]) {
						missing = append(missing, a)
					}
				}
				if len(missing) > 0 {
					return fmt.Errorf("%v do not fire; these do: %v", missing, slices.Sorted(maps.Keys(firing)))
				}
				return nil
			})
			for _, a := range f.alerts {
				s.follow(t, a)
			}
			f.mend(t)
			s.awaitCalm(t, "the end of "+f.name)
		}) {
			return // what follows needs a lab in order
		}
	}
	for name := range exprs {
		if !caused[name] {
			t.Errorf("nothing causes %s", name)
		}
	}
}

// planeless are alerts whose runbooks ask for what no plane can answer while they fire.
var planeless = []string{"FairleadNoLeader", "FairleadAgentWithoutPlane"}

// follow runs what an alert's runbook has people run to look for the cause: each command of fairlead answers.
func (s *site) follow(t *testing.T, alert string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "runbooks", alert+".md"))
	if err != nil {
		t.Fatal(err)
	}
	_, look, _ := strings.Cut(string(text), "## Look\n")
	look, _, _ = strings.Cut(look, "## Mend\n")
	names := strings.NewReplacer("NAMESPACE", "shop", "NAME", "up01", "VIP:PORT", l4VIP+":80", "FRONTEND", l4VIP+":80", "http://HOST/PATH", "http://shop.example.com/bad")
	for line := range strings.Lines(look) {
		line, _, _ = strings.Cut(line, "#")
		line, _, _ = strings.Cut(line, "|")
		words := strings.Fields(names.Replace(line))
		if len(words) == 0 || words[0] != "fairlead" || slices.Contains(planeless, alert) {
			continue
		}
		// One that waits for what does not come is no help either.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		out, err := s.plane.Machine.Command(ctx, append([]string{s.Binary}, words[1:]...)...).CombinedOutput()
		cancel()
		if err != nil || len(out) == 0 {
			t.Errorf("%s: %s: %v: %s", alert, strings.Join(words, " "), err, out)
		} else {
			t.Logf("%s: %s\n%.1500s", alert, strings.Join(words, " "), out)
		}
	}
}

// awaitCalm waits until no alert fires.
func (s *site) awaitCalm(t *testing.T, what string) {
	t.Helper()
	s.awaitAlerts(t, what, func(firing map[string]bool) error {
		if len(firing) > 0 {
			return fmt.Errorf("these fire: %v", slices.Sorted(maps.Keys(firing)))
		}
		return nil
	})
}

func (s *site) awaitAlerts(t *testing.T, what string, good func(map[string]bool) error) {
	t.Helper()
	s.awaitFor(t, what, func(ctx context.Context) error {
		firing, err := s.prometheus.alerts(ctx)
		if err != nil {
			return err
		}
		return good(firing)
	})
}

// certificate is that of the Gateway from now on.
func (s *site) certificate(t *testing.T, life time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := s.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "shop.example.com"}, DNSNames: []string{"shop.example.com"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	indented := func(kind string, der []byte) string {
		text := string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
		return strings.ReplaceAll("|\n"+text, "\n", "\n    ")
	}
	s.apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: tls, namespace: shop}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: "+
		indented("CERTIFICATE", der)+"\n  tls.key: "+indented("PRIVATE KEY", pkcs8)+"\n")
}

// shorten gives a machine a certificate that ends early, and returns the identity that it had. The agents' authority
// signs it, so planes accept it, and it is not to be renewed yet: no renewal hides that it ends.
func (s *site) shorten(t *testing.T, machine string, life time.Duration) (before []byte) {
	t.Helper()
	before, err := os.ReadFile(s.identityFile(machine))
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]string
	if err := json.Unmarshal(before, &record); err != nil {
		t.Fatal(err)
	}
	encoded := s.kubectl(t, "-n", "fairlead-system", "get", "secret", "fairlead-agent-authority", "-o", `jsonpath={.data.authority\.pem}`)
	authority, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := tls.X509KeyPair(authority, authority)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := x509.ParseCertificate(signer.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair([]byte(record["chain"]), []byte(record["key"]))
	if err != nil {
		t.Fatal(err)
	}
	template, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	template.NotAfter = s.Now().Add(life)
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, template.PublicKey, signer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	_, rest := pem.Decode([]byte(record["chain"]))
	record["chain"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(rest)
	after, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	s.identify(t, machine, after)
	return before
}

func (s *site) identityFile(machine string) string {
	return filepath.Join(s.Lab.State().Dir(), "machines", machine, "agent", "identity", "identity.json")
}

// identify starts a machine's agent again, with another identity. Its Envoy serves on.
func (s *site) identify(t *testing.T, machine string, identity []byte) {
	t.Helper()
	s.agents[machine].Process.Kill9()
	if err := os.WriteFile(s.identityFile(machine), identity, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.agents[machine].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// signalEnvoy sends a signal to the Envoy of a machine.
func (s *site) signalEnvoy(t *testing.T, machine string, signal unix.Signal) {
	t.Helper()
	e, err := s.agents[machine].Envoy()
	if err == nil {
		err = unix.Kill(e.Pid.ID, signal)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// restartEnvoy kills a machine's Envoy and waits until Prometheus has seen another start of it.
func (s *site) restartEnvoy(t *testing.T, machine string) {
	t.Helper()
	starts := func(ctx context.Context) (string, error) {
		found, err := s.prometheus.query(ctx, `fairlead_agent_proxy_starts{instance=~"`+s.Lab.Machine(machine).Addr4().String()+`.*"} and fairlead_agent_proxy_ready == 1`)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("%d results", len(found))
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprint(found[0].Value[1]), nil
	}
	before, err := starts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.signalEnvoy(t, machine, unix.SIGKILL)
	s.await(t, "the proxy to start again", func(ctx context.Context) error {
		now, err := starts(ctx)
		if err == nil && now == before {
			err = errors.New("it has not")
		}
		return err
	})
}

// fill writes until the file system has no space.
func fill(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block := make([]byte, 1<<12)
	for {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// startSlow runs a backend that takes three seconds to answer, but for a path to which it answers every second time
// that it is to be asked again.
func (s *site) startSlow(t *testing.T) {
	t.Helper()
	var asked atomic.Int64
	s.serve(t, s.slow(), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/again" {
			if asked.Add(1)%2 == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return
		}
		select {
		case <-time.After(3 * time.Second): // what is tried: an application that takes its time
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "slow\n")
	})
}

// startMortal runs the backend that dies when the test wants.
func (s *site) startMortal(t *testing.T) {
	t.Helper()
	s.mortal = s.serve(t, s.dying(), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "mortal\n") })
}

func (s *site) serve(t *testing.T, b rig.Backend, handler http.HandlerFunc) *http.Server {
	t.Helper()
	l, err := s.Lab.Machine("os1").Listen(t.Context(), "tcp", b.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handler}
	go func() { _ = server.Serve(l) }()
	s.t.Cleanup(func() { _ = server.Close() }) // not at the end of a part of the test
	return server
}
