package ipvs

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// available is nil if the kernel has IPVS now.
func available() error {
	if _, err := netlink.GenlFamilyGet("IPVS"); err != nil {
		return unsupported("the kernel does not have it: load the module ip_vs (modprobe ip_vs, and ip_vs_mh, ip_vs_wrr or ip_vs_wlc for the scheduler; a file in /etc/modules-load.d for the next boot), or use the data plane NFTables (%w)", err)
	}
	return nil
}

// kernel is IPVS in a network namespace.
type kernel struct{ handle *ipvs.Handle }

func openKernel() (*kernel, error) {
	if err := available(); err != nil {
		return nil, err
	}
	h, err := ipvs.New("")
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for IPVS: %w", err)
	}
	return &kernel{h}, nil
}

func family16(is4 bool) uint16 {
	if is4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// svc is the service in the library's words.
func (s service) svc() *ipvs.Service {
	is4 := s.target.is4
	x := &ipvs.Service{FWMark: s.target.mark, SchedName: s.scheduler, Flags: s.flags, Timeout: s.timeout}
	if s.target.mark == 0 {
		is4 = s.target.key.VIP.Is4()
		x.Address, x.Protocol, x.Port = s.target.key.VIP.AsSlice(), uint16(lookup.Number(s.target.key.Transport)), s.target.key.Port
	}
	x.AddressFamily = family16(is4)
	x.Netmask = 128 // of clients with affinity: each alone
	if is4 {
		x.Netmask = 0xffffffff
	}
	return x
}

func dest(a netip.AddrPort, b backend) *ipvs.Destination {
	return &ipvs.Destination{
		AddressFamily: family16(a.Addr().Is4()), Address: a.Addr().AsSlice(), Port: a.Port(),
		Weight: int(b.weight), ConnectionFlags: b.forward, UpperThreshold: b.limit,
	}
}

func targetOf(x *ipvs.Service) target {
	if x.FWMark != 0 {
		return target{mark: x.FWMark, is4: x.AddressFamily == unix.AF_INET}
	}
	t := target{key: model.FrontendKey{Transport: model.TCP, Port: x.Port}}
	if x.Protocol == uint16(lookup.Number(model.UDP)) {
		t.key.Transport = model.UDP
	}
	t.key.VIP, _ = netip.AddrFromSlice(x.Address)
	return t
}

func known(x *ipvs.Service) bool {
	return x.FWMark != 0 || x.Protocol == uint16(lookup.Number(model.TCP)) || x.Protocol == uint16(lookup.Number(model.UDP))
}

// read returns all services of the kernel, ours and others'; of ours with their backends.
func (k *kernel) read(ours func(target) bool) (services map[target]service, others map[target]bool, err error) {
	found, err := k.handle.GetServices()
	if err != nil {
		return nil, nil, fmt.Errorf("list services of IPVS: %w", err)
	}
	services, others = map[target]service{}, map[target]bool{}
	for _, x := range found {
		if !known(x) {
			continue
		}
		t := targetOf(x)
		if !ours(t) {
			others[t] = true
			continue
		}
		s := service{target: t, scheduler: x.SchedName, flags: x.Flags &^ flagHashed, timeout: x.Timeout, backends: map[netip.AddrPort]backend{}}
		if s.flags&flagPersistent == 0 {
			s.timeout = 0
		}
		destinations, err := k.handle.GetDestinations(s.svc())
		if err != nil {
			return nil, nil, fmt.Errorf("list the backends of service %s of IPVS: %w", t, err)
		}
		for _, d := range destinations {
			a, _ := netip.AddrFromSlice(d.Address)
			s.backends[netip.AddrPortFrom(a, d.Port)] = backend{weight: uint32(d.Weight), forward: d.ConnectionFlags & ipvs.ConnFwdMask, limit: d.UpperThreshold}
		}
		services[t] = s
	}
	return services, others, nil
}

// change makes a service another; there says that it exists. Backends come before others
// go, so that there is always one.
func (k *kernel) change(from service, there bool, to service) error {
	var err error
	what := "add"
	switch {
	case !there:
		err = k.handle.NewService(to.svc())
	case from.scheduler != to.scheduler || from.flags != to.flags || from.timeout != to.timeout:
		what = "change"
		err = k.handle.UpdateService(to.svc())
	}
	if err != nil {
		return fmt.Errorf("%s service %s of IPVS: %w", what, to.target, explain(err, to.scheduler))
	}
	for a, b := range to.backends {
		was, there := from.backends[a]
		switch {
		case !there:
			err = k.handle.NewDestination(to.svc(), dest(a, b))
		case was != b:
			err = k.handle.UpdateDestination(to.svc(), dest(a, b))
		}
		if err != nil {
			return fmt.Errorf("set backend %s of service %s of IPVS: %w", a, to.target, explain(err, to.scheduler))
		}
	}
	for a := range from.backends {
		if _, stays := to.backends[a]; !stays {
			if err := k.handle.DelDestination(to.svc(), dest(a, backend{})); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove backend %s of service %s of IPVS: %w", a, to.target, err)
			}
		}
	}
	return nil
}

func (k *kernel) remove(s service) error {
	if err := k.handle.DelService(s.svc()); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove service %s of IPVS: %w", s.target, err)
	}
	return nil
}

func (s service) equal(t service) bool {
	return s.scheduler == t.scheduler && s.flags == t.flags && s.timeout == t.timeout && maps.Equal(s.backends, t.backends)
}

// explain adds what an error of the kernel means here.
func explain(err error, scheduler string) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (CAP_NET_ADMIN is required)", err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: load the scheduler's module (modprobe ip_vs_%s): %w", err, scheduler, errors.ErrUnsupported)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w: the kernel's IPVS is built without IPv6: %w", err, errors.ErrUnsupported)
	}
	return err
}

func sortedTargets(services map[target]service) []target {
	return slices.SortedFunc(maps.Keys(services), target.compare)
}
