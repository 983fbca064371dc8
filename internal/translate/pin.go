package translate

import "fairlead.dev/internal/model"

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
func (t *Translator) Pin(p Pins) { t.pin(p, 1) }

// Unpin takes back a Pin.
func (t *Translator) Unpin(p Pins) { t.pin(p, -1) }

func (t *Translator) pin(p Pins, by int) {
	for _, g := range p.Groups {
		t.useGroups([]model.BackendGroup{g}, by)
	}
	for _, id := range p.Certificates {
		t.useCertificate(id, by)
	}
	for _, id := range p.Authorities {
		t.useAuthority(id, by)
	}
}
