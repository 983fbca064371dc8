package model

import "cmp"

import "time"

// CertificateID identifies a certificate with its key: "namespace/name" of the Secret.
type CertificateID string

// Certificate is what a server or client proves itself with.
type Certificate struct {
	ID    CertificateID `json:"id"`
	Chain string        `json:"chain"` // PEM, the leaf first
	Key   Redacted      `json:"key"`   // PEM
	// Names are the DNS names and IP addresses in the leaf, sorted.
	Names     []string  `json:"names"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	// MustStaple says that clients are to refuse the certificate without an OCSP response (RFC
	// 7633); Envoy does not accept it without one.
	MustStaple bool `json:"mustStaple,omitempty"`
	// OCSP is the DER response to staple (RFC 6066, 8), if there is one.
	OCSP []byte `json:"ocsp,omitempty"`
}

// AuthorityID identifies a bundle of CA certificates: "ConfigMap/namespace/name" or
// "Secret/namespace/name".
type AuthorityID string

// Authority is a bundle of certificates that others are verified by.
type Authority struct {
	ID  AuthorityID `json:"id"`
	PEM string      `json:"pem"`
}

// TLSVersion is "1.0" to "1.3"; empty is the default, 1.2.
type TLSVersion string

// defaultTLS is the least version where nobody says one.
const defaultTLS TLSVersion = "1.2"

// LeastTLS is the least version of a host's connections: what the host asks for, else its listener, but
// not below the operator's floor. Empty is nothing asked, or no floor.
func LeastTLS(host, listener, floor TLSVersion) TLSVersion {
	return max(cmp.Or(host, listener, defaultTLS), floor) // "1.0" to "1.3" are in order
}

// TLSHost is what becomes of TLS connections for one server name at a listener. The host
// of the key is exact, "*.suffix" or "*", which also matches clients without a server name.
type TLSHost struct {
	HostKey
	Owner Object `json:"owner"`
	// Certificates to show; of several the proxy chooses the one for the server name and the
	// client's algorithms. Empty hands connections on without ending TLS (passthrough) where
	// TCP is set, and closes them where it is not: the host is somebody's, who has no
	// certificate that can be shown.
	Certificates []CertificateID `json:"certificates,omitempty"`
	MinVersion   TLSVersion      `json:"minVersion,omitempty"`
	// TCP hands what is inside to backends as bytes instead of HTTP requests.
	TCP []WeightedGroup `json:"tcp,omitempty"`
}

// ClientValidation asks clients for certificates (mutual TLS).
type ClientValidation struct {
	Authorities []AuthorityID `json:"authorities"` // sorted; one of them must have signed
	// Optional lets clients in without a certificate, or with one that does not verify
	// (Gateway API: AllowInsecureFallback).
	Optional bool `json:"optional,omitempty"`
}

// BackendTLS speaks TLS with backends and verifies them.
type BackendTLS struct {
	// ServerName is sent, and must be in the certificate unless Names says other names. Empty
	// sends none; then Names or Unverified is set.
	ServerName string `json:"serverName"`
	// Names of which the certificate must have one.
	Names []AltName `json:"names,omitempty"`
	// Authorities that may have signed; empty are those of the machine's system.
	Authorities []AuthorityID `json:"authorities,omitempty"`
	// Unverified accepts any certificate that the backend shows.
	Unverified bool `json:"unverified,omitempty"`
	// Certificate that the proxy shows; empty is none.
	Certificate CertificateID `json:"certificate,omitempty"`
}

// AltName is a subject alternative name. One of them is set.
type AltName struct {
	DNS string `json:"dns,omitempty"`
	URI string `json:"uri,omitempty"`
}
