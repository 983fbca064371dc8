package embedded

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ErrDamaged is returned when a file of the certificate authorities is missing or damaged.
var ErrDamaged = errors.New("certificate authority is damaged")

const (
	// Leaves are renewed when a third of their life is left.
	leafLife    = 365 * 24 * time.Hour
	renewBefore = leafLife / 3
	caLife      = 30 * 365 * 24 * time.Hour
	// Authorities warn this long before nothing they signed is believed any more.
	caWarning = 365 * 24 * time.Hour
)

// A machine without a battery clock makes its authorities before it knows the time. They must be
// valid once it does, so their validity is laid around this range, whatever the clock says.
var (
	caNotBefore = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	caMadeAfter = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Names of the files in the pki directory: authorities are .crt and .key, leaves one .pem with both.
const (
	clusterCA        = "ca"             // signs the serving certificate and all clients
	frontProxyCA     = "front-proxy-ca" // signs who may speak for other users
	serviceAccountCA = "sa"             // a key alone: signs ServiceAccount tokens

	leafAPIServer  = "apiserver"
	leafFrontProxy = "front-proxy-client"
	leafPlane      = "plane"
	leafAdmin      = "admin"
)

// leafSpec says what a certificate of ours must contain.
type leafSpec struct {
	name, ca string
	subject  pkix.Name
	usage    x509.ExtKeyUsage
	dns      []string
	ips      []netip.Addr
}

// pki is the certificates of one data directory.
type pki struct {
	dir    string
	log    *slog.Logger
	cas    map[string]*authority
	leaves []leafSpec
}

// leafSpecs lists the certificates that a server at these addresses needs.
func leafSpecs(c Config, hostname string) []leafSpec {
	ips := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback(), c.AdvertiseAddress, c.serviceAddress()}
	if !c.BindAddress.IsUnspecified() {
		ips = append(ips, c.BindAddress)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	dns := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	if hostname != "" && net.ParseIP(hostname) == nil {
		dns = append(dns, hostname)
	}
	slices.Sort(dns)
	masters := []string{"system:masters"}
	return []leafSpec{
		{
			name: leafAPIServer, ca: clusterCA, subject: pkix.Name{CommonName: "kube-apiserver"}, usage: x509.ExtKeyUsageServerAuth,
			dns: slices.Compact(dns), ips: slices.Compact(ips),
		},
		{name: leafPlane, ca: clusterCA, subject: pkix.Name{CommonName: "fairlead:plane", Organization: masters}, usage: x509.ExtKeyUsageClientAuth},
		{name: leafAdmin, ca: clusterCA, subject: pkix.Name{CommonName: "fairlead:admin", Organization: masters}, usage: x509.ExtKeyUsageClientAuth},
		{name: leafFrontProxy, ca: frontProxyCA, subject: pkix.Name{CommonName: leafFrontProxy}, usage: x509.ExtKeyUsageClientAuth},
	}
}

// openPKI loads the authorities in c's data directory, makes them if there are none yet, and
// brings every leaf up to date. Damaged leaves are replaced; damaged authorities are an error,
// because everything that trusts them would have to be told.
func openPKI(c Config) (*pki, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("ask for the host name: %w", err)
	}
	p := &pki{dir: c.pkiDir(), log: c.Log, cas: map[string]*authority{}, leaves: leafSpecs(c, hostname)}
	now := c.Now()
	if entries, err := os.ReadDir(p.dir); errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0) {
		if err := makeAuthorities(p.dir, now); err != nil {
			return nil, fmt.Errorf("make certificate authorities in %s: %w", p.dir, err)
		}
		c.Log.Info("certificate authorities made", "dir", p.dir)
	}
	if err := removeTemporaries(p.dir); err != nil {
		return nil, fmt.Errorf("clean %s: %w", p.dir, err)
	}
	for _, name := range []string{clusterCA, frontProxyCA} {
		ca, err := loadAuthority(p.dir, name)
		if err != nil {
			return nil, p.damaged(err)
		}
		switch {
		case now.After(ca.cert.NotAfter):
			return nil, fmt.Errorf("certificate authority %s expired on %s: check this machine's clock (%s); if it is right, move %s aside to begin with new authorities",
				p.path(name+".crt"), ca.cert.NotAfter.Format(time.DateOnly), now.Format(time.RFC3339), p.dir)
		case now.Add(caWarning).After(ca.cert.NotAfter):
			c.Log.Warn("certificate authority expires soon", "file", p.path(name+".crt"), "expires", ca.cert.NotAfter)
		}
		p.cas[name] = ca
	}
	if _, err := loadKey(p.path(serviceAccountCA + ".key")); err != nil {
		return nil, p.damaged(err)
	}
	if _, err := p.renew(now); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

func (p *pki) damaged(err error) error {
	return fmt.Errorf("%w: %w: restore %s from a backup (fairlead restore), or move it aside to begin with new authorities, after which every kubeconfig and every machine needs new certificates",
		ErrDamaged, err, p.dir)
}

// makeAuthorities fills dir, which must not exist, in one step.
func makeAuthorities(dir string, now time.Time) error {
	staging, err := os.MkdirTemp(filepath.Dir(dir), tempPrefix+"pki-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging)
	for _, name := range []string{clusterCA, frontProxyCA} {
		ca, err := newAuthority("fairlead "+name, now)
		if err != nil {
			return err
		}
		if err := ca.save(staging, name); err != nil {
			return err
		}
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	if err := saveKey(filepath.Join(staging, serviceAccountCA+".key"), key); err != nil {
		return err
	}
	if err := os.Rename(staging, dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// renew replaces every leaf that is missing, damaged, not what its spec says, not signed by our
// authority, not valid now, or in the last third of its life. It returns the names of those it
// replaced. A running kube-apiserver and running clients read the files again by themselves.
func (p *pki) renew(now time.Time) ([]string, error) {
	var renewed []string
	for _, spec := range p.leaves {
		ca := p.cas[spec.ca]
		why := ""
		cert, err := loadLeaf(p.dir, spec.name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			why = "missing"
		case err != nil:
			why = err.Error()
		default:
			why = staleness(cert, spec, ca, now)
		}
		if why == "" {
			continue
		}
		if err := ca.issue(p.dir, spec, now); err != nil {
			return renewed, fmt.Errorf("issue certificate %s: %w", p.path(spec.name+".pem"), err)
		}
		p.log.Info("certificate issued", "file", p.path(spec.name+".pem"), "why", why, "expires", now.Add(leafLife))
		renewed = append(renewed, spec.name)
	}
	return renewed, nil
}

// staleness says why cert is not good enough for spec at this time, or "".
func staleness(cert *x509.Certificate, spec leafSpec, ca *authority, now time.Time) string {
	var have []netip.Addr
	for _, ip := range cert.IPAddresses {
		if a, ok := netip.AddrFromSlice(ip); ok {
			have = append(have, a.Unmap())
		}
	}
	slices.SortFunc(have, netip.Addr.Compare)
	names := slices.Sorted(slices.Values(cert.DNSNames))
	switch {
	case now.Before(cert.NotBefore):
		return "not valid before " + cert.NotBefore.Format(time.RFC3339)
	case now.After(cert.NotAfter):
		return "expired on " + cert.NotAfter.Format(time.RFC3339)
	case now.Add(renewBefore).After(cert.NotAfter):
		return "expires on " + cert.NotAfter.Format(time.RFC3339)
	case cert.CheckSignatureFrom(ca.cert) != nil:
		return "signed by another authority"
	case !slices.Equal(names, spec.dns) || !slices.Equal(have, spec.ips):
		return "names or addresses changed"
	case cert.Subject.CommonName != spec.subject.CommonName || !slices.Equal(cert.Subject.Organization, spec.subject.Organization):
		return "subject changed"
	case !slices.Contains(cert.ExtKeyUsage, spec.usage):
		return "usage changed"
	}
	return ""
}
