package plane

import (
	"context"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/staple"
)

// staples are the OCSP responses of the certificates that machines show. The zero value has
// none.
type staples struct{ keeper *staple.Keeper }

// newStaples asks responders if the plane is told to. It calls changed with each certificate whose
// response is another.
func newStaples(c Config, changed func(model.CertificateID)) staples {
	if !c.OCSPStapling {
		return staples{}
	}
	return staples{staple.New(staple.Config{Log: c.Log, Now: c.Now, HTTP: c.responders, Changed: changed})}
}

// enabled says that responders are asked.
func (s staples) enabled() bool { return s.keeper != nil }

// run asks responders until ctx is done.
func (s staples) run(ctx context.Context) { s.keeper.Run(ctx) }

func (s staples) about(id model.CertificateID) staple.Report {
	if s.keeper == nil {
		return staple.Report{}
	}
	return s.keeper.About(id)
}

// current is the response of a certificate; empty where there is none.
func (s staples) current(c *model.Certificate) []byte {
	if s.keeper == nil {
		return nil
	}
	return s.keeper.Of(c.ID, c.Chain)
}

// attach gives each certificate that changed its response, in a copy: translation's stay
// as they are.
func (s staples) attach(certificates map[model.CertificateID]*model.Certificate) map[model.CertificateID]*model.Certificate {
	if s.keeper == nil || len(certificates) == 0 {
		return certificates
	}
	out := make(map[model.CertificateID]*model.Certificate, len(certificates))
	for id, c := range certificates {
		if c == nil {
			s.keeper.Forget(id)
			out[id] = nil
			continue
		}
		s.keeper.Set(id, c.Chain)
		with := *c
		with.OCSP = s.keeper.Of(id, c.Chain)
		out[id] = &with
	}
	return out
}

// problem completes what is wrong with a certificate's response, if something is.
func (s staples) problem(p model.Problem, c *model.Certificate) (model.Problem, bool) {
	r := s.about(c.ID)
	why := r.Problem
	switch {
	case s.keeper == nil:
		why = "start the plane with --ocsp-stapling"
	case why == "" && r.Asked:
		why = "it names no responder"
	case why == "":
		why = "the responder has not answered yet"
	}
	switch {
	case r.Revoked:
		p.Reason, p.Message = reasonRevoked, r.Problem
	case c.MustStaple && len(c.OCSP) == 0:
		p.Reason, p.Message = reasonUnstaple, catalog.Unstapled+": "+why+"; machines keep their previous one, if any"
	case r.Problem != "" && r.Until.IsZero():
		p.Severity, p.Reason, p.Message = model.SeverityWarning, reasonUnstaple, "its certificate is shown without an OCSP response: "+why
	default:
		return p, false
	}
	return p, true
}
