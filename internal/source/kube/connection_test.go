package kube

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// firstContact is a Sink that gives what is told first.
type firstContact chan error

func (firstContact) Replace([]*model.UpstreamService) {}
func (firstContact) Put(...*model.UpstreamService)    {}
func (firstContact) Remove(...model.UpstreamKey)      {}
func (c firstContact) Contact(err error) {
	select {
	case c <- err:
	default:
	}
}

// The server's certificate and our credentials, over real connections.
func TestConnections(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	cert, key := keyPair(t, time.Now().AddDate(1, 0, 0))
	oldCert, oldKey := keyPair(t, time.Now().AddDate(0, 0, -1))
	otherCert, _ := keyPair(t, time.Now().AddDate(1, 0, 0))
	const exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never, args: [-c, " +
		`'echo ''{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"hunter2"}}''']}`
	for name, c := range map[string]struct {
		cert, key, authority []byte
		serverName           string
		user                 string
		allow                cloud.Allow
		reason               string // ServerError if the token is right
	}{
		"token":               {cert, key, cert, "api.example", "token: hunter2", cloud.Allow{}, v1alpha1.ReasonServerError},
		"wrong token":         {cert, key, cert, "api.example", "token: other", cloud.Allow{}, v1alpha1.ReasonUnauthorized},
		"program":             {cert, key, cert, "api.example", exec, cloud.Allow{Exec: true}, v1alpha1.ReasonServerError},
		"wrong authority":     {cert, key, otherCert, "api.example", "token: hunter2", cloud.Allow{}, v1alpha1.ReasonCertificate},
		"wrong name":          {cert, key, cert, "other.example", "token: hunter2", cloud.Allow{}, v1alpha1.ReasonCertificate},
		"expired certificate": {oldCert, oldKey, oldCert, "api.example", "token: hunter2", cloud.Allow{}, v1alpha1.ReasonCertificate},
	} {
		c.allow.Loopback = true
		t.Run(name, func(t *testing.T) {
			pair, err := tls.X509KeyPair(c.cert, c.key)
			if err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if r.Header.Get("Authorization") != "Bearer hunter2" {
					refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
					return
				}
				refuse(w, http.StatusInternalServerError, "InternalError", "the token is right")
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			told := make(firstContact, 1)
			s, err := New(Config{
				Name: "up01", Sink: told, Log: slog.New(slog.DiscardHandler), Allow: c.allow,
				Kubeconfig: []byte(kubeconfig(fmt.Sprintf("server: '%s', tls-server-name: %s, certificate-authority-data: %s", server.URL, c.serverName,
					base64.StdEncoding.EncodeToString(c.authority)), c.user)),
			})
			if err != nil {
				t.Fatal(err)
			}
			go s.Run(t.Context())
			if err := <-told; cloud.ReasonOf(err) != c.reason {
				t.Errorf("%s: %v, want %s", cloud.ReasonOf(err), err, c.reason)
			}
			if c.reason == v1alpha1.ReasonCertificate && asked.Load() > 0 {
				t.Error("a request was sent to a server that was not verified")
			}
		})
	}
}
