package xdp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// vipGuarded is VIP_GUARDED of bpf/lb/layout.h.
const vipGuarded = 1 << 31

// wireKey is a frontend's key as programs have it.
func wireKey(k model.FrontendKey) bpfFrontendKey {
	return bpfFrontendKey{Vip: wireAddress(k.VIP), Port: bpf.NetworkPort(k.Port), Protocol: lookup.Number(k.Transport)}
}

// keyOf is the other way round.
func keyOf(k bpfFrontendKey) model.FrontendKey {
	key := model.FrontendKey{VIP: k.Vip.address(), Port: bpf.NetworkPort(k.Port), Transport: model.TCP}
	if k.Protocol != lookup.Number(model.TCP) {
		key.Transport = model.UDP
	}
	return key
}

// vipValue is what programs know of a VIP with n frontends.
func (s *state) vipValue(vip netip.Addr, n uint32) uint32 {
	if s.guarded[vip] {
		n |= vipGuarded
	}
	return n
}

// open lets in what is not to be kept out any more. It comes before frontends change, and
// shut after: what moves from one to another is never kept out in between.
func (s *state) open() error {
	var errs []error
	for vip := range s.guarded {
		if _, stays := s.guard[vip]; stays {
			continue
		}
		delete(s.guarded, vip)
		if err := s.k.maps.Vips.Put(wireAddress(vip), s.vipValue(vip, s.vips[vip])); err != nil {
			errs = append(errs, fmt.Errorf("stop guarding the VIP %s: %w", vip, err))
		}
	}
	for _, keys := range s.guard {
		for _, k := range keys {
			if s.others[k] {
				continue
			}
			if err := s.k.maps.Others.Put(wireKey(k), uint32(1)); err != nil {
				errs = append(errs, fmt.Errorf("write the entry of %s, which another program serves: %w", k, full(err, s.k.maps.Others)))
				continue
			}
			s.others[k] = true
		}
	}
	return errors.Join(errs...)
}

// shut keeps out what is for no frontend of a VIP that is guarded. A VIP of which not all
// is known stays open.
func (s *state) shut() error {
	var errs []error
	for k := range s.others {
		if slices.Contains(s.guard[k.VIP], k) {
			continue
		}
		if err := absent(s.k.maps.Others.Delete(wireKey(k))); err != nil {
			errs = append(errs, fmt.Errorf("remove the entry of %s, which another program served: %w", k, err))
			continue
		}
		delete(s.others, k)
	}
	for vip, keys := range s.guard {
		whole := !slices.ContainsFunc(keys, func(k model.FrontendKey) bool { return !s.others[k] })
		if s.guarded[vip] || !whole || s.vips[vip] == 0 {
			continue
		}
		s.guarded[vip] = true
		if err := s.k.maps.Vips.Put(wireAddress(vip), s.vipValue(vip, s.vips[vip])); err != nil {
			delete(s.guarded, vip)
			errs = append(errs, fmt.Errorf("guard the VIP %s: %w", vip, err))
		}
	}
	return errors.Join(errs...)
}

// guarded are the VIPs to be guarded: none that is an address of the machine itself, by
// which it is reached in other ways.
func (d *DataPlane) guarded() map[netip.Addr][]model.FrontendKey {
	own, _ := d.c.Addresses() // what is wrong is said of the interfaces
	own = slices.Clone(own)
	for _, n := range d.want.Nodes {
		own = append(own, n.Tunnel4, n.Tunnel6)
	}
	vips := maps.Clone(d.want.Guarded)
	maps.DeleteFunc(vips, func(vip netip.Addr, _ []model.FrontendKey) bool { return slices.Contains(own, vip) })
	return vips
}
