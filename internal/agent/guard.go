package agent

import (
	"slices"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

// receiveVIP notes a VIP that the machine has, or has no longer.
func (b *balancer) receiveVIP(c delta.Change) error {
	if c.Resource == nil {
		delete(b.vips, c.Name)
		return nil
	}
	v, err := readVIP(c.Resource)
	if err != nil {
		return err
	}
	b.vips[c.Name] = v
	return nil
}

// guard says of the machine's VIPs that nothing but their frontends is to be reached there.
// Those that a data plane does not balance are told to it, also when they are not known
// yet: a proxy may serve them already.
func (b *balancer) guard(wants []model.Balancing) {
	for _, v := range b.vips {
		at := map[model.FrontendKey]bool{} // what may be served there; true: by something else
		for _, key := range v.Frontends {
			f := b.frontends[key]
			at[key] = f == nil || f.Listener != ""
		}
		for _, id := range v.Listeners {
			_, port := id.Entry()
			for _, transport := range []model.Transport{model.TCP, model.UDP} {
				at[model.FrontendKey{VIP: v.Address, Transport: transport, Port: port}] = true
			}
		}
		for i, w := range wants {
			others := []model.FrontendKey{}
			for key, other := range at {
				if p := b.joined[key]; p != nil && p.plane >= 0 {
					other = true
				}
				if _, mine := w.Frontends[key]; other && !mine {
					others = append(others, key)
				}
			}
			slices.SortFunc(others, model.FrontendKey.Compare)
			wants[i].Guarded[v.Address] = others
		}
	}
}
