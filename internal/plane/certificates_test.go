package plane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

func TestCertificatesThatEndAreProblems(t *testing.T) {
	at := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	m, err := newMetrics(prometheus.NewRegistry(), newWriteMetrics(), calm{}, calm{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCertificates(staples{})
	certificate := func(id model.CertificateID, from, to time.Duration) *model.Certificate {
		return &model.Certificate{ID: id, NotBefore: at.Add(from), NotAfter: at.Add(to)}
	}
	const day = 24 * time.Hour
	k := model.HostKey{Listener: "https-443", Host: "www.example.com"}
	host := &model.TLSHost{HostKey: k, Owner: model.Object{Kind: "Gateway", Namespace: "a", Name: "edge"}, Certificates: []model.CertificateID{"a/old", "a/good"}}
	c.apply(translate.Changes{
		Certificates: map[model.CertificateID]*model.Certificate{
			"a/old": certificate("a/old", -90*day, -day), "a/early": certificate("a/early", day, 90*day),
			"a/soon": certificate("a/soon", -day, 13*day), "a/good": certificate("a/good", -day, 60*day),
		},
		TLSHosts: map[model.HostKey]*model.TLSHost{k: host},
	})
	problems := c.problems(at)
	if len(problems) != 3 {
		t.Fatalf("problems: %+v", problems)
	}
	for i, want := range []struct{ subject, reason, message string }{
		{"Secret a/early", reasonNotValid, "not valid before 2026-06-02T00:00:00Z"},
		{"Secret a/old", reasonExpired, "expired at 2026-05-31T00:00:00Z; shown for www.example.com of Gateway a/edge"},
		{"Secret a/soon", reasonExpires, "expires at 2026-06-14T00:00:00Z"},
	} {
		if p := problems[i]; p.Subject != want.subject || p.Reason != want.reason || !strings.HasSuffix(p.Message, want.message) {
			t.Errorf("problem %d is %+v, want %+v", i, p, want)
		}
	}
	c.count(m, at)
	for state, want := range map[string]float64{certificateValid: 1, certificateExpiring: 1, certificateExpired: 1, certificateEarly: 1} {
		if got := testutil.ToFloat64(m.certificates.WithLabelValues(state)); got != want {
			t.Errorf("%v certificates are %s, want %v", got, state, want)
		}
	}
	if got, want := testutil.ToFloat64(m.nextExpiry), float64(at.Add(-day).Unix()); got != want {
		t.Errorf("the next one ends at %v, want %v", got, want)
	}
	if got, want := testutil.ToFloat64(m.expiry.WithLabelValues("a", "good")), float64(at.Add(60*day).Unix()); got != want {
		t.Errorf("a/good ends at %v, want %v", got, want)
	}
	// Renewed, and the host taken back: nothing is left.
	c.apply(translate.Changes{
		Certificates: map[model.CertificateID]*model.Certificate{"a/old": nil, "a/early": nil, "a/soon": nil, "a/good": nil},
		TLSHosts:     map[model.HostKey]*model.TLSHost{k: nil},
	})
	if c.count(m, at); len(c.problems(at))+len(c.known)+len(c.hosts)+len(c.users)+testutil.CollectAndCount(m.expiry) != 0 || testutil.ToFloat64(m.nextExpiry) != 0 {
		t.Errorf("left over: %+v", c)
	}
}

// Those that expire first have a metric each; the others are counted.
func TestExpiriesAreBounded(t *testing.T) {
	m, err := newMetrics(prometheus.NewRegistry(), newWriteMetrics(), calm{}, calm{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCertificates(staples{})
	at := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	list := map[model.CertificateID]*model.Certificate{}
	for i := range 300 {
		list[model.CertificateID(fmt.Sprintf("a/c%03d", i))] = &model.Certificate{NotAfter: at.Add(time.Duration(300-i) * time.Hour)}
	}
	c.apply(translate.Changes{Certificates: list})
	c.count(m, at)
	if n, left := testutil.CollectAndCount(m.expiry), testutil.ToFloat64(m.expiriesLeft); n != 200 || left != 100 {
		t.Errorf("%d certificates have a metric and %v are left out, want 200 and 100", n, left)
	}
	if got, want := testutil.ToFloat64(m.expiry.WithLabelValues("a", "c299")), float64(at.Add(time.Hour).Unix()); got != want {
		t.Errorf("the first one expires at %v, want %v", got, want)
	}
}
