package embedded

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func pkiConfig(t *testing.T, dir string, now time.Time) Config {
	t.Helper()
	c, err := Config{
		DataDir: dir, Log: testLog(t), AdvertiseAddress: netip.MustParseAddr("2001:db8::1"), BindAddress: netip.MustParseAddr("0.0.0.0"),
		Now: func() time.Time { return now },
	}.complete()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustLoad(t *testing.T, p *pki, name string) *x509.Certificate {
	t.Helper()
	cert, err := loadLeaf(p.dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

var today = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func TestCertificatesAreForThisMachine(t *testing.T) {
	p, err := openPKI(pkiConfig(t, t.TempDir(), today))
	if err != nil {
		t.Fatal(err)
	}
	cert := mustLoad(t, p, leafAPIServer)
	pool := x509.NewCertPool()
	pool.AddCert(p.cas[clusterCA].cert)
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "2001:db8::1", "kubernetes.default.svc", "10.96.0.1", hostname} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: today}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: "example.com", CurrentTime: today}); err == nil {
		t.Error("it is believed as example.com")
	}
	for _, name := range []string{leafAdmin, leafPlane} {
		client := mustLoad(t, p, name)
		if _, err := client.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: today}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Who may speak for others is decided by another authority than who he is.
	if _, err := mustLoad(t, p, leafFrontProxy).Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: today}); err == nil {
		t.Error("the front proxy's certificate is believed as a client's")
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, error %v", f, info.Mode(), err)
		}
	}
}

func TestCertificatesAreKeptAndRenewed(t *testing.T) {
	for _, test := range []struct {
		name    string
		now     time.Time
		change  func(t *testing.T, dir string, c *Config)
		renewed []string
	}{
		{name: "the same day", now: today},
		{name: "before the last third", now: today.Add(leafLife - renewBefore - time.Hour)},
		{name: "in the last third", now: today.Add(leafLife - renewBefore + time.Hour), renewed: []string{leafAPIServer, leafPlane, leafAdmin, leafFrontProxy}},
		{name: "expired", now: today.Add(3 * leafLife), renewed: []string{leafAPIServer, leafPlane, leafAdmin, leafFrontProxy}},
		{name: "the clock stepped back", now: today.Add(-5 * leafLife), renewed: []string{leafAPIServer, leafPlane, leafAdmin, leafFrontProxy}},
		{
			name: "another address", now: today, renewed: []string{leafAPIServer},
			change: func(_ *testing.T, _ string, c *Config) { c.AdvertiseAddress = netip.MustParseAddr("192.0.2.7") },
		},
		{
			name: "half-written certificate", now: today, renewed: []string{leafPlane},
			change: func(t *testing.T, dir string, _ *Config) { truncate(t, filepath.Join(dir, "pki", "plane.pem"), 2) },
		},
		{
			name: "empty file", now: today, renewed: []string{leafAdmin},
			change: func(t *testing.T, dir string, _ *Config) { truncate(t, filepath.Join(dir, "pki", "admin.pem"), 0) },
		},
		{
			name: "key of another", now: today, renewed: []string{leafAPIServer},
			change: func(t *testing.T, dir string, _ *Config) {
				cert, _, err := leafBlocks(filepath.Join(dir, "pki"), leafAPIServer)
				if err != nil {
					t.Fatal(err)
				}
				_, key, err := leafBlocks(filepath.Join(dir, "pki"), leafAdmin)
				if err != nil {
					t.Fatal(err)
				}
				mixed := append(pem.EncodeToMemory(cert), pem.EncodeToMemory(key)...)
				if err := writeFile(filepath.Join(dir, "pki", "apiserver.pem"), mixed); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "missing", now: today, renewed: []string{leafFrontProxy},
			change: func(t *testing.T, dir string, _ *Config) {
				if err := os.Remove(filepath.Join(dir, "pki", "front-proxy-client.pem")); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			first, err := openPKI(pkiConfig(t, dir, today))
			if err != nil {
				t.Fatal(err)
			}
			leaves := []string{leafAPIServer, leafPlane, leafAdmin, leafFrontProxy}
			before := map[string]*x509.Certificate{}
			for _, name := range leaves {
				before[name] = mustLoad(t, first, name)
			}
			ca := first.cas[clusterCA].cert
			c := pkiConfig(t, dir, test.now)
			if test.change != nil {
				test.change(t, dir, &c)
			}
			p, err := openPKI(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range leaves {
				after := mustLoad(t, p, name)
				if changed, want := !after.Equal(before[name]), slices.Contains(test.renewed, name); changed != want {
					t.Errorf("%s: renewed %v, want %v", name, changed, want)
				}
				if test.now.Before(after.NotBefore) || test.now.After(after.NotAfter) {
					t.Errorf("%s is valid from %s to %s, not on %s", name, after.NotBefore, after.NotAfter, test.now)
				}
			}
			if !p.cas[clusterCA].cert.Equal(ca) {
				t.Error("the authority changed")
			}
			if ca.NotBefore.After(test.now) {
				t.Errorf("the authority is not valid before %s", ca.NotBefore)
			}
		})
	}
}

func truncate(t *testing.T, path string, parts int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	if parts > 0 {
		size = info.Size() / parts
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// A machine without a battery clock makes its authority in 1970 and uses it for decades after.
func TestAuthorityMadeBeforeTheClockWasSet(t *testing.T) {
	dir := t.TempDir()
	if _, err := openPKI(pkiConfig(t, dir, time.Unix(60, 0))); err != nil {
		t.Fatal(err)
	}
	if _, err := openPKI(pkiConfig(t, dir, today.AddDate(20, 0, 0))); err != nil {
		t.Error(err)
	}
}

func TestDamagedAuthoritiesAreRefused(t *testing.T) {
	for _, test := range []struct {
		file   string
		damage func(t *testing.T, path string)
		says   string
	}{
		{"ca.crt", func(t *testing.T, path string) { truncate(t, path, 2) }, "not PEM or is cut short"},
		{"ca.key", func(t *testing.T, path string) { truncate(t, path, 0) }, "is empty"},
		{"front-proxy-ca.crt", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		{"front-proxy-ca.key", func(t *testing.T, path string) {
			key, err := newKey()
			if err != nil {
				t.Fatal(err)
			}
			if err := saveKey(path, key); err != nil {
				t.Fatal(err)
			}
		}, "does not belong to"},
		{"sa.key", func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append(b, bytes.Repeat([]byte{0}, 512)...), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "512 bytes after"},
	} {
		t.Run(test.file, func(t *testing.T) {
			dir := t.TempDir()
			c := pkiConfig(t, dir, today)
			if _, err := openPKI(c); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "pki", test.file)
			test.damage(t, path)
			// Through Start, which must refuse before anything runs.
			_, err := Start(t.Context(), Config{DataDir: dir, Log: testLog(t), Now: c.Now})
			wantError(t, err, path, test.says, "fairlead restore", "move it aside")
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%v is not ErrDamaged", err)
			}
		})
	}
}

func TestExpiredAuthorityIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := openPKI(pkiConfig(t, dir, today)); err != nil {
		t.Fatal(err)
	}
	_, err := openPKI(pkiConfig(t, dir, today.Add(caLife+time.Hour)))
	wantError(t, err, "ca.crt expired", "clock")
}
