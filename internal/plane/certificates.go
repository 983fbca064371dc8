package plane

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// Reasons of problems of certificates, and states of them in metrics.
const (
	reasonExpired  = "CertificateExpired"
	reasonExpires  = "CertificateExpires"
	reasonNotValid = "CertificateNotValidYet"
	reasonRevoked  = "CertificateRevoked"
	reasonUnstaple = "CertificateNotStapled"

	certificateValid    = "valid"
	certificateExpiring = "expiring"
	certificateExpired  = "expired"
	certificateEarly    = "not_valid_yet"
)

// expiryWarning is how long before its end a certificate is a problem. Whoever renews them
// by machine does so earlier: cert-manager after two thirds of their life.
const expiryWarning = 14 * 24 * time.Hour

// mostExpiries is how many certificates have a metric of their own.
const mostExpiries = 200

// certificates are those that machines show or know, and for which names.
type certificates struct {
	known map[model.CertificateID]*model.Certificate
	hosts map[model.HostKey]*model.TLSHost
	users map[model.CertificateID]map[model.HostKey]bool
	// staples say what is known of certificates' OCSP responses.
	staples staples
	changed bool // since the last count
}

func newCertificates(s staples) certificates {
	return certificates{
		staples: s,
		known:   map[model.CertificateID]*model.Certificate{}, hosts: map[model.HostKey]*model.TLSHost{}, users: map[model.CertificateID]map[model.HostKey]bool{},
	}
}

// apply applies the changes of a translation.
func (c *certificates) apply(ch translate.Changes) {
	for id, certificate := range ch.Certificates {
		if certificate == nil {
			delete(c.known, id)
		} else {
			c.known[id] = certificate
		}
		c.changed = true
	}
	for k, host := range ch.TLSHosts {
		if old := c.hosts[k]; old != nil {
			for _, id := range old.Certificates {
				delete(c.users[id], k)
				if len(c.users[id]) == 0 {
					delete(c.users, id)
				}
			}
		}
		if host == nil {
			delete(c.hosts, k)
			continue
		}
		c.hosts[k] = host
		for _, id := range host.Certificates {
			if c.users[id] == nil {
				c.users[id] = map[model.HostKey]bool{}
			}
			c.users[id][k] = true
		}
	}
}

// restapled are those of the certificates whose response is not the one that they have.
func (c *certificates) restapled(ids map[model.CertificateID]bool) map[model.CertificateID]*model.Certificate {
	changed := map[model.CertificateID]*model.Certificate{}
	for id := range ids {
		if k := c.known[id]; k != nil && !bytes.Equal(k.OCSP, c.staples.current(k)) {
			changed[id] = k
		}
	}
	return changed
}

// awaitStaples says that a certificate must be shown with a response whose responder was not asked yet.
func (c *certificates) awaitStaples() bool {
	if !c.staples.enabled() {
		return false
	}
	for id, k := range c.known {
		if k.MustStaple && len(k.OCSP) == 0 && !c.staples.about(id).Asked {
			return true
		}
	}
	return false
}

func certificateState(c *model.Certificate, now time.Time) string {
	switch {
	case now.After(c.NotAfter):
		return certificateExpired
	case now.Before(c.NotBefore):
		return certificateEarly
	case now.Add(expiryWarning).After(c.NotAfter):
		return certificateExpiring
	}
	return certificateValid
}

// statuses are all certificates with who shows them, sorted.
func (c *certificates) statuses() []model.CertificateStatus {
	var list []model.CertificateStatus
	for _, id := range slices.Sorted(maps.Keys(c.known)) {
		certificate := c.known[id]
		s := model.CertificateStatus{ID: id, Names: certificate.Names, NotBefore: certificate.NotBefore, NotAfter: certificate.NotAfter}
		if len(certificate.OCSP) > 0 {
			s.StapledUntil = c.staples.about(id).Until
		}
		for k := range c.users[id] {
			s.Owners = append(s.Owners, c.hosts[k].Owner.String())
			s.Hosts = append(s.Hosts, k.Host)
		}
		slices.Sort(s.Owners)
		slices.Sort(s.Hosts)
		s.Owners, s.Hosts = slices.Compact(s.Owners), slices.Compact(s.Hosts)
		list = append(list, s)
	}
	return list
}

// problems are the certificates that are not valid, or soon not any more.
func (c *certificates) problems(now time.Time) []model.Problem {
	var problems []model.Problem
	for _, s := range c.statuses() {
		namespace, name, _ := strings.Cut(string(s.ID), "/")
		p := model.Problem{
			Severity: model.SeverityError, Subject: model.Object{Kind: string(snapshot.KindSecret), Namespace: namespace, Name: name}.String(),
		}
		note := func(p model.Problem) {
			if len(s.Hosts) > 0 {
				p.Message += "; shown for " + model.List(s.Hosts, ", ") + " of " + model.List(s.Owners, ", ")
			}
			problems = append(problems, p)
		}
		if unstapled, is := c.staples.problem(p, c.known[s.ID]); is {
			note(unstapled)
		}
		switch certificateState(c.known[s.ID], now) {
		case certificateExpired:
			p.Reason, p.Message = reasonExpired, "its certificate expired at "+s.NotAfter.Format(time.RFC3339)
		case certificateEarly:
			p.Reason, p.Message = reasonNotValid, "its certificate is not valid before "+s.NotBefore.Format(time.RFC3339)
		case certificateExpiring:
			p.Severity, p.Reason, p.Message = model.SeverityWarning, reasonExpires, "its certificate expires at "+s.NotAfter.Format(time.RFC3339)
		default:
			continue
		}
		note(p)
	}
	return problems
}

// count brings the metrics of certificates up to date.
func (c *certificates) count(m *metrics, now time.Time) {
	states := map[string]float64{certificateValid: 0, certificateExpiring: 0, certificateExpired: 0, certificateEarly: 0}
	var next time.Time
	if c.changed {
		c.changed = false
		c.countExpiries(m)
	}
	stapled := 0
	for _, certificate := range c.known {
		if len(certificate.OCSP) > 0 {
			stapled++
		}
		states[certificateState(certificate, now)]++
		if next.IsZero() || certificate.NotAfter.Before(next) {
			next = certificate.NotAfter
		}
	}
	m.stapled.Set(float64(stapled))
	for state, n := range states {
		m.certificates.WithLabelValues(state).Set(n)
	}
	if next.IsZero() {
		m.nextExpiry.Set(0)
	} else {
		m.nextExpiry.Set(float64(next.Unix()))
	}
}

// countExpiries has the certificates that expire first say when, each by itself.
func (c *certificates) countExpiries(m *metrics) {
	ids := slices.SortedFunc(maps.Keys(c.known), func(a, b model.CertificateID) int {
		return cmp.Or(c.known[a].NotAfter.Compare(c.known[b].NotAfter), cmp.Compare(a, b))
	})
	m.expiriesLeft.Set(float64(max(0, len(ids)-mostExpiries)))
	m.expiry.Reset()
	for _, id := range ids[:min(len(ids), mostExpiries)] {
		namespace, name, _ := strings.Cut(string(id), "/")
		m.expiry.WithLabelValues(namespace, name).Set(float64(c.known[id].NotAfter.Unix()))
	}
}
