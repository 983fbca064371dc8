package agent

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// trustOf says who has signed a certificate, and which authorities came with it, in the form in
// which planes say it.
func trustOf(leaf *x509.Certificate, authorities []*x509.Certificate) *agentv1.Trust {
	t := &agentv1.Trust{}
	for _, c := range authorities {
		pin := pinOf(c)
		t.Authorities = append(t.Authorities, pin)
		if t.Issuer == nil && leaf.CheckSignatureFrom(c) == nil {
			t.Issuer = pin
		}
	}
	slices.SortFunc(t.GetAuthorities(), bytes.Compare)
	return t
}

// pinOf names an authority as tokens and planes do.
func pinOf(authority *x509.Certificate) []byte {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return sum[:]
}

// sameTrust says whether two certificates are of the same authority and come with the same ones.
func sameTrust(a, b *agentv1.Trust) bool {
	return bytes.Equal(a.GetIssuer(), b.GetIssuer()) && slices.EqualFunc(a.GetAuthorities(), b.GetAuthorities(), bytes.Equal)
}

func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return list, nil
}
