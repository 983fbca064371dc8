package host

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/certificate/certificatetest"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/pool"
	"fairlead.dev/internal/translate/target"
)

// TestTheOldestHasAServerName holds that age decides who has a server name, and that machines receive the certificates
// of that one alone.
func TestTheOldestHasAServerName(t *testing.T) {
	g := memo.New()
	in := input.New(g, input.Config{}.WithDefaults())
	targets, certificates, pools := target.New(g, in), certificate.New(g, in), pool.New(g, in)
	backends := backend.New(g, in, backend.Rooms{Targets: targets, Certificates: certificates, Pool: pools, Fleet: fleet.New(g, in, fleet.Rooms{Pool: pools})})
	tables := New(g, in, Rooms{Targets: targets, Certificates: certificates, Backend: backends, Policy: policy.New(g, in, policy.Rooms{Targets: targets, Backend: backends})})
	given := memo.NewInput[string, *NameCandidate](g, "candidates of the test")
	memo.NewScan(g, "candidates of the test: index", given, func(c *memo.Context, _ string, candidate *NameCandidate) {
		tables.Names.Put(c, candidate.Host.HostKey, candidate.Host.Owner, candidate)
	}, memo.Puts(tables.Names))
	g.Seal()
	s := snapshot.New()
	type changes struct {
		names        map[model.HostKey]*model.TLSHost
		certificates map[model.CertificateID]*model.Certificate
	}
	run := func(objects ...metav1.Object) changes {
		t.Helper()
		for _, o := range objects {
			k, err := s.Set(o)
			if err != nil {
				t.Fatal(err)
			}
			in.Changed(s, k)
		}
		g.Run()
		if hosts := tables.Hosts.Changes(); len(hosts) > 0 {
			t.Errorf("virtual hosts changed: %v", hosts)
		}
		return changes{tables.TLSHosts.Changes(), certificates.UsedCertificate.Changes()}
	}
	run(certificatetest.Secret(t, "team", "web", "www.example.com"))
	k := model.HostKey{Listener: "https-443", Host: "www.example.com"}
	owner := func(name string) model.Object { return model.Object{Kind: "Gateway", Namespace: "team", Name: name} }
	add := func(name string, created int64, ids ...model.CertificateID) {
		given.Set(name, &NameCandidate{Created: created, Host: model.TLSHost{HostKey: k, Owner: owner(name), Certificates: ids}})
	}
	add("young", 2, "team/web")
	if c := run(); len(c.certificates) != 1 || c.names[k] == nil {
		t.Errorf("a first candidate changed %+v", c)
	}
	add("old", 1)
	if c := run(); c.names[k].Owner != owner("old") || len(c.certificates) != 1 || c.certificates["team/web"] != nil {
		t.Errorf("an older candidate changed %+v", c)
	}
	given.Delete("old")
	if c := run(); c.names[k].Owner != owner("young") || c.certificates["team/web"] == nil {
		t.Errorf("an older candidate that goes changed %+v", c)
	}
	if c := run(certificatetest.Secret(t, "team", "web", "www.example.com")); len(c.certificates) != 1 || len(c.names) != 0 {
		t.Errorf("a renewed certificate changed %+v", c)
	}
	given.Delete("young")
	if c := run(); len(c.names) != 1 || len(c.certificates) != 1 || g.Sizes()["server name"].Values+g.Sizes()["uses of a certificate"].Values != 0 {
		t.Errorf("a last candidate that goes changed %+v", c)
	}
}
