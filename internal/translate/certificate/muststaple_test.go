package certificate

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
)

// TestMustStaple holds that a certificate with the TLS feature status_request must be shown with an OCSP response, and
// that features which cannot be read ask for nothing.
func TestMustStaple(t *testing.T) {
	feature := func(value ...byte) *x509.Certificate {
		return &x509.Certificate{Extensions: []pkix.Extension{{Id: []int{2, 5, 29, 15}, Value: []byte{3, 2, 7, 128}}, {Id: []int{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: value}}}
	}
	for name, c := range map[string]struct {
		leaf *x509.Certificate
		want bool
	}{
		"none":             {&x509.Certificate{}, false},
		"status_request":   {feature(0x30, 3, 2, 1, 5), true},
		"both":             {feature(0x30, 6, 2, 1, 17, 2, 1, 5), true},
		"another":          {feature(0x30, 3, 2, 1, 17), false},
		"cannot be read":   {feature(0x30, 9, 2, 1), false},
		"nothing asked of": {feature(0x30, 0), false},
	} {
		if got := mustStaple(c.leaf); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
