package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"fairlead.dev/internal/delta"
)

// systemAuthority is the name that package xds gives to the Secret of no authorities in
// particular. Those of the machine's system are meant, which only the agent knows.
const systemAuthority = "authority/"

// authorityFiles are where systems keep the certificates of the authorities that they trust;
// the first that is there counts (as in Go's crypto/x509).
var authorityFiles = [...]string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Arch, Gentoo
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL
	"/etc/ssl/cert.pem",                                 // Alpine
}

// readAuthorities is the Secret of the system's authorities; nil where the system has none.
// Backends that are verified by them then wait for it. As for other programs, SSL_CERT_FILE
// says another file.
func readAuthorities(named string) (*delta.Resource, error) {
	files := authorityFiles[:]
	if named != "" {
		files = []string{named}
	}
	for _, file := range files {
		pem, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && named == "" {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the system's authorities: %w", err)
		}
		r, err := delta.NewResource(systemAuthority, &tlsv3.Secret{Name: systemAuthority, Type: &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: &corev3.DataSource{
				Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem},
			}},
		}})
		if err != nil {
			return nil, fmt.Errorf("encode the system's authorities: %w", err)
		}
		return &r, nil
	}
	return nil, nil
}
