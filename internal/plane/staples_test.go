package plane

import (
	"log/slog"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/staple"
)

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
