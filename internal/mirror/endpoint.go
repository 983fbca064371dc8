package mirror

import (
	"net/netip"
	"slices"

	"fairlead.dev/internal/model"
)

// admitEndpoints counts the endpoints of a slice that may be here, and notes those that may not.
func (u *upstream) admitEndpoints(e *service, s *model.UpstreamSlice) []model.UpstreamEndpoint {
	room := limitOf(u.object.Spec.Limits.Endpoints, defaultEndpoints) - u.endpoints - e.endpoints
	var in []model.UpstreamEndpoint
	outside, beyond := 0, 0
	var first netip.Addr
	for _, p := range s.Endpoints {
		switch a := p.Address.Unmap(); {
		case !isUsable(a) || !u.allows(a):
			if outside++; outside == 1 {
				first = a
			}
		case len(in) >= room:
			beyond++
		default:
			p.Address = a
			in = append(in, p)
		}
	}
	if outside > 0 {
		e.refused = append(e.refused, model.UpstreamRefusal{
			Object: e.from.Object, Reason: model.RefusedAddress,
			Message: number(outside, "endpoint is", "endpoints are") + " outside of spec.addresses, or of no machine, the first of them " + first.String(),
		})
	}
	if beyond > 0 {
		u.short[e.key] = true
		e.refused = append(e.refused, model.UpstreamRefusal{
			Object: e.from.Object, Reason: model.RefusedLimit,
			Message: number(beyond, "endpoint is", "endpoints are") + " beyond spec.limits.endpoints",
		})
	}
	e.endpoints += len(in)
	return in
}

// isUsable says whether an address can be one of an EndpointSlice (Kubernetes, ValidateEndpointIP).
func isUsable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func (u *upstream) allows(a netip.Addr) bool {
	if len(u.object.Spec.Addresses) == 0 {
		return true
	}
	return slices.ContainsFunc(u.object.Spec.Addresses, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.Contains(a)
	})
}

func limitOf(limit int32, standard int) int {
	if limit == 0 {
		return standard
	}
	return int(limit)
}

// The defaults of spec.limits, where the API has not set them.
const (
	defaultServices  = 10000
	defaultEndpoints = 100000
)
