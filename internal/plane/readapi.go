package plane

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

var errNoAuthority = errors.New("the plane has not read its authority yet")

// ReadTLS is how the read API is served. It asks for a client certificate, which others judge.
func (p *Plane) ReadTLS() (*tls.Config, error) {
	authority := p.authority.Load()
	if authority == nil {
		return nil, errNoAuthority
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, Time: p.config.Now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return authority.Serving() },
		// A certificate is judged when it is shown: no connection goes on with one of an earlier connection.
		SessionTicketsDisabled: true,
	}, nil
}

// RelayTLS is how this plane asks the read API of another one.
func (p *Plane) RelayTLS() (*tls.Config, error) {
	authority := p.authority.Load()
	if authority == nil {
		return nil, errNoAuthority
	}
	return southbound.AsPlane(authority, p.config.Now), nil
}

// IsPlane says whether a certificate is that of a plane of the same authority.
func (p *Plane) IsPlane(chain []*x509.Certificate) bool {
	authority := p.authority.Load()
	return authority != nil && len(chain) > 0 && southbound.OfPlane(chain[0], authority.Trust(), p.config.Now()) == nil
}

// offerRead publishes where the read API is, and by which authorities it is known.
func (p *Plane) offerRead(roots string) {
	if p.config.ReadAddress == "" {
		return
	}
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: v1.ReadConfigMap},
		Data:       map[string]string{v1.ReadURL: cmp.Or(p.config.ReadURL, "https://"+p.config.ReadAddress), v1.ReadAuthority: roots, v1.ReadServerName: agentv1.ServerName},
	}
	o.OwnerReferences, _ = derive.Owned(nil, p.lease.ownerReference())
	p.derived.Offer(derive.Object{
		Wanted: o, Merge: mergeRead, Recheck: publishEvery,
		Tell: func(_ derive.Trouble, err error) {
			p.config.Log.Error("programs do not find the read API", "error",
				fmt.Errorf("publish it in config map %s: %w", client.ObjectKeyFromObject(o), err))
		},
	})
}

// mergeRead sets the fields of the read API, and the owner with which it goes.
func mergeRead(live, wanted client.Object) bool {
	at, is := live.(*corev1.ConfigMap)
	want, isToo := wanted.(*corev1.ConfigMap)
	if !is || !isToo {
		return false
	}
	owned := false
	for i := range want.OwnerReferences {
		var changed bool
		at.OwnerReferences, changed = derive.Owned(at.OwnerReferences, &want.OwnerReferences[i])
		owned = owned || changed
	}
	if maps.Equal(at.Data, want.Data) {
		return owned
	}
	at.Data = want.Data
	return true
}
