package input

import "fairlead.dev/internal/model"

// Pins are things that machines go on using although no resource may ask for them any
// more: a plane that holds changes back pins the published ones. Each is named once.
type Pins struct {
	Groups       []model.BackendGroup
	Certificates []model.CertificateID
	Authorities  []model.AuthorityID
}

// Pin adds one set of pins, which nobody may change afterwards. unpin removes it.
func (t *Tables) Pin(p Pins) (unpin func()) {
	t.lastPin++
	id := t.lastPin
	t.Pins.Set(id, p)
	return func() { t.Pins.Delete(id) }
}
