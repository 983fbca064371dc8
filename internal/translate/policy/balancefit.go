package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/target"
)

// BalanceUse is what settings are for: a port of an address.
type BalanceUse struct {
	Transport model.Transport
	Port      uint16
	Proxies   bool // the backends are proxies
	Services  []ServicePorts
	Sets      []model.Target
	// Anchors are what may say how it is balanced, the nearest first.
	Anchors []target.Ref
	Owner   model.Object   // who has the addresses
	Sources []netip.Prefix // that the owner lets in, beside the policy's
}

// ServicePorts are the ports at which the backends of a Service's port answer.
type ServicePorts struct {
	Set   model.SetID
	Ports []uint16
}

// Fit leaves out what cannot be where it is used, and says what and why. The problems do
// not depend on the port.
func (s BalanceSettings) Fit(u BalanceUse) (BalanceSettings, []string) {
	var problems []string
	fail := func(path, problem string) { problems = append(problems, "spec."+path+": "+problem) }
	if u.Proxies {
		switch s.Mode {
		case model.ModeNAT, model.ModeDSRIPIP, model.ModeDSRL2:
			fail("mode", string(s.Mode)+" does not lead to proxies: only Local and DSRGeneve do")
			s.Mode = ""
		}
		if s.Check != nil {
			fail("healthCheck", "the backends are proxies, which their machines watch")
			s.Check = nil
		}
		if s.Panics != nil {
			fail("panicThreshold", "the backends are proxies, which their machines watch")
			s.Panics = nil
		}
		if s.Weights != nil {
			fail("weights", "the backends are proxies, of which all count the same")
			s.Weights = nil
		}
		if s.quic != nil {
			fail("quic", "the proxies write no server IDs")
			s.quic = nil
		}
	}
	if s.quic != nil && u.Transport != model.UDP {
		fail("quic", "is for UDP, and this is TCP")
		s.quic = nil
	}
	if s.Mode == model.ModeDSRIPIP || s.Mode == model.ModeDSRL2 {
		for _, service := range u.Services {
			if i := slices.IndexFunc(service.Ports, func(p uint16) bool { return p != u.Port }); i >= 0 {
				fail("mode", string(s.Mode)+" leaves packets as they are, for port "+strconv.Itoa(int(u.Port))+", and backends of "+string(service.Set)+
					" answer at port "+strconv.Itoa(int(service.Ports[i]))+": give both one number, or choose another mode")
				s.Mode = ""
				break
			}
		}
	}
	return s, problems
}

// NeedsIPVS notes what settings without a data plane ask of machines: those that no other data
// plane can carry out leave nothing but IPVS.
func (s BalanceSettings) NeedsIPVS() string {
	fields := s.OfIPVS()
	switch len(fields) {
	case 0:
		if s.Scheduler == string(v1alpha1.SchedulerMH) {
			return "; spec.scheduler: mh only counts where a machine balances with IPVS; XDP and nftables hash, too"
		}
		return ""
	case 1:
		fields[0] += " needs"
	default:
		fields[1] += " need"
	}
	return "; " + strings.Join(fields, " and ") + " IPVS: XDP and nftables are not used, and a machine without IPVS balances nothing here"
}
