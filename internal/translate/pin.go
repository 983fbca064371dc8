package translate

import (
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/certificate"
)

// Pins are things that machines go on using although no resource may ask for them any
// more: a plane that holds changes back pins what it has published.
type Pins struct {
	Groups       []model.BackendGroup
	Certificates []model.CertificateID
	Authorities  []model.AuthorityID
}

// Pin counts one more user of each thing, Unpin takes it back. Pinned groups, their sets,
// certificates and authorities stay in the result and follow their resources as long as
// these exist. Both take effect with the next Apply.
func (t *Translator) Pin(p Pins) {
	for i := range p.Groups {
		g := &p.Groups[i]
		t.backend.GroupUses.Set(g.ID, pinned, nil, &g)
	}
	for _, id := range p.Certificates {
		t.certificates.CertificateUses.Set(id, pinned, nil, &struct{}{})
	}
	for _, id := range p.Authorities {
		t.certificates.AuthorityUses.Set(id, pinned, nil, &struct{}{})
	}
}

// Unpin takes back a Pin.
func (t *Translator) Unpin(p Pins) {
	for i := range p.Groups {
		g := &p.Groups[i]
		t.backend.GroupUses.Set(g.ID, pinned, &g, nil)
	}
	for _, id := range p.Certificates {
		t.certificates.CertificateUses.Set(id, pinned, &struct{}{}, nil)
	}
	for _, id := range p.Authorities {
		t.certificates.AuthorityUses.Set(id, pinned, &struct{}{}, nil)
	}
}

// pinned is the user of what is pinned.
var pinned = certificate.User{Kind: "pin"}
