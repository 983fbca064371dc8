package plane

import (
	"log/slog"
	"strings"
	"testing"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/staple"
	"fairlead.dev/internal/xds"
)

// A certificate that has to be shown with a response is not sent before there is one: Envoy
// would refuse it. Who has an older version keeps it, and what is not concerned goes on.
func TestMustStapleWaitsForItsResponse(t *testing.T) {
	c := newCatalog(xds.Options{}, health.New())
	tr := newTracker(c)
	k := model.HostKey{Listener: "https-443", Host: "www.example.com"}
	owner := model.Object{Kind: "Gateway", Namespace: "team", Name: "edge"}
	first := noChanges()
	first.Listeners[k.Listener] = &model.Listener{ID: k.Listener, Port: 443, Protocol: model.ProtocolHTTPS}
	first.Views["all"] = &model.View{ID: "all", Listeners: []model.ListenerID{k.Listener}}
	first.TLSHosts[k] = &model.TLSHost{HostKey: k, Owner: owner, Certificates: []model.CertificateID{"team/www"}}
	certificate := func(chain string, response []byte) *model.Certificate {
		return &model.Certificate{ID: "team/www", Chain: chain, Key: "key", MustStaple: true, OCSP: response}
	}
	first.Certificates["team/www"] = certificate("one", nil)
	secrets := func(changes []delta.Change) (n int) {
		for _, change := range changes {
			if change.Type == typeSecret && change.Resource != nil {
				n++
			}
		}
		return n
	}
	step := func(number uint64, chain string, response []byte) (sent int, stale bool) {
		ch := first
		if number > 1 {
			ch = noChanges()
			ch.Certificates["team/www"] = certificate(chain, response)
		}
		n := secrets(c.apply(ch)["all"])
		tr.byHost[k] = map[model.Object]bool{owner: true}
		return n, tr.changed(delta.Revision{Epoch: 1, Number: number}, ch)[owner]
	}
	target := &target{hosts: []model.HostKey{k}}
	if n, _ := step(1, "one", nil); n != 0 || !strings.Contains(tr.held(target), whyUnstapled) || len(c.unfitProblems()) != 1 {
		t.Errorf("without a response %d secrets are sent; held: %q", n, tr.held(target))
	}
	if n, stale := step(2, "one", []byte("response")); n != 1 || !stale || tr.held(target) != "" || len(c.unfitProblems()) != 0 {
		t.Errorf("with a response %d secrets are sent, the owner is judged again: %v; held: %q", n, stale, tr.held(target))
	}
	if n, _ := step(3, "two", nil); n != 0 || tr.held(target) != "" || len(c.unfitProblems()) != 1 {
		t.Errorf("renewed without a response %d secrets are sent; held: %q", n, tr.held(target))
	}
	if n, _ := step(4, "two", []byte("response")); n != 1 || len(c.unfitProblems()) != 0 {
		t.Errorf("renewed with a response %d secrets are sent", n)
	}
}

func TestStaplesGoWithCopies(t *testing.T) {
	given := map[model.CertificateID]*model.Certificate{"team/www": {ID: "team/www", Chain: "chain", OCSP: []byte("old")}, "team/gone": nil}
	if got := (staples{}).attach(given); got["team/www"] != given["team/www"] {
		t.Error("without stapling certificates are copied")
	}
	s := staples{keeper: staple.New(staple.Config{Log: slog.New(slog.DiscardHandler)})}
	got := s.attach(given)
	if got["team/www"].OCSP != nil || string(given["team/www"].OCSP) != "old" || len(got) != 2 || got["team/gone"] != nil {
		t.Errorf("%+v of %+v", got["team/www"], given["team/www"])
	}
}

func TestProblemsOfStaples(t *testing.T) {
	on := staples{keeper: staple.New(staple.Config{Log: slog.New(slog.DiscardHandler)})}
	on.keeper.Set("team/broken", "no chain at all")
	for _, c := range []struct {
		name      string
		staples   staples
		id        model.CertificateID
		must, has bool
		want      string
	}{
		{"nothing is asked", staples{}, "team/www", false, false, ""},
		{"off", staples{}, "team/www", true, false, "start the plane with --ocsp-stapling"},
		{"at once", on, "team/www", true, false, "the responder has not answered yet"},
		{"no responder", on, "team/broken", true, false, "it names no responder"},
		{"no responder, no need", on, "team/broken", false, false, ""},
		{"there", on, "team/www", true, true, ""},
	} {
		certificate := &model.Certificate{ID: c.id, MustStaple: c.must}
		if c.has {
			certificate.OCSP = []byte("response")
		}
		p, is := c.staples.problem(model.Problem{Severity: model.SeverityError}, certificate)
		if is != (c.want != "") || is && (!strings.Contains(p.Message, c.want) || p.Reason != reasonUnstaple) {
			t.Errorf("%s: %+v, want %q", c.name, p, c.want)
		}
	}
}
