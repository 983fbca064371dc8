package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// Bytes that a tunnel of ours adds at most: outer headers, Geneve and its option.
const (
	overhead4 = 20 + 8 + 8 + 32
	overhead6 = 40 + 8 + 8 + 32
	// leastMTU is what every link of IPv6 carries (RFC 8200, 5).
	leastMTU = 1280
)

func overhead(remote netip.Addr) int {
	if remote.Is6() {
		return overhead6
	}
	return overhead4
}

// Observed is described by the interface that the agent states.
func (d *DataPlane) Observed() []model.FrontendObserved {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.observed()
}

func (d *DataPlane) observed() []model.FrontendObserved {
	list := make([]model.FrontendObserved, 0, len(d.want.Frontends))
	for key := range d.want.Frontends {
		o := model.FrontendObserved{FrontendKey: key, State: model.FrontendPending, DataPlane: model.DataPlaneXDP, Message: "it has not been tried yet"}
		if d.state != nil {
			if f := d.state.frontends[key]; f != nil && f.plan != nil {
				d.observe(&o, f)
			}
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b model.FrontendObserved) int { return a.Compare(b.FrontendKey) })
	return list
}

func (d *DataPlane) observe(o *model.FrontendObserved, f *frontend) {
	var messages []string
	if f.plan.message != "" {
		messages = append(messages, f.plan.message)
	}
	o.State = model.FrontendRefused
	switch {
	case f.refused != nil:
		messages = append(messages, f.refused.Error())
	case !f.plan.here:
		o.State = model.FrontendDecap
		messages = append(messages, d.problems...)
	case f.plan.direct:
		o.State, o.Mode, o.Available = model.FrontendBalanced, model.ModeLocal, f.plan.available()
	default:
		o.Mode, o.Available = f.plan.mode, f.plan.available()
		if len(d.attached.At(bpf.XDP)) > 0 {
			o.State = model.FrontendBalanced
		}
		if n := due(f.plan.members); f.table != nil && f.table.size != n {
			messages = append(messages, fmt.Sprintf("its lookup table has %d rows, not %d, because the map of %d has no room: shares follow weights less closely, and machines with more room may choose other backends",
				f.table.size, n, d.k.rowCount))
		}
		messages = append(messages, d.problems...)
		messages = append(messages, d.ways(f)...)
	}
	o.Message = strings.Join(messages, "; ")
}

// ways is what is wrong with the ways to a frontend's backends.
func (d *DataPlane) ways(f *frontend) []string {
	var wrong []string
	seen := map[netip.Addr]bool{}
	for _, m := range f.plan.members {
		if !m.remote.IsValid() || seen[m.remote] || m.flags&bpfBackendFlagBACKEND_READY == 0 || m.flags&bpfBackendFlagBACKEND_HERE != 0 {
			continue
		}
		seen[m.remote] = true
		p := d.hops.Path(m.remote)
		if p.Problem != "" {
			wrong = append(wrong, p.Problem)
		}
		if room := p.MTU - overhead(m.remote); p.MTU > 0 && m.mode == bpfModeMODE_GENEVE && room < leastMTU {
			wrong = append(wrong, fmt.Sprintf("only packets up to %d bytes fit the tunnel to %s, whose path carries %d: raise the MTU between the machines to %d or more",
				room, m.remote, p.MTU, 1500+overhead(m.remote)))
		}
	}
	if f.plan.mode == model.ModeNAT {
		if p := d.portProblem(); p != "" {
			wrong = append(wrong, p)
		}
	}
	slices.Sort(wrong)
	const most = 3
	if len(wrong) > most {
		wrong = append(wrong[:most], fmt.Sprintf("and %d more", len(wrong)-most))
	}
	return wrong
}

// Tunnel is described by the interface that the agent states.
func (d *DataPlane) Tunnel() (mtu uint32, message string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != nil {
		return 0, d.why.Error(), false
	}
	if time.Since(d.tunnel.at) > resync {
		_, _, _ = d.devices() // what it was stands if it cannot be seen
	}
	return d.tunnel.mtu, d.tunnel.message, d.tunnel.mtu > 0
}

// tunnel is what is known of the machine's end of tunnels.
type tunnel struct {
	at      time.Time
	mtu     uint32 // 0: there is no interface for them
	message string
}

func newTunnel(found []bpf.Device, errs []error) tunnel {
	t := tunnel{at: time.Now()}
	for _, v := range found {
		if t.mtu == 0 || uint32(v.MTU) < t.mtu {
			t.mtu = uint32(v.MTU)
		}
	}
	var messages []string
	for _, err := range errs {
		messages = append(messages, err.Error())
	}
	// Below the smallest MTU of IPv6 (RFC 8200, 5) nobody can be told; above, all that is too
	// large is answered with the size that fits.
	if t.mtu > 0 && t.mtu < 1280+overhead6 {
		messages = append(messages, fmt.Sprintf("packets of clients with more than %d bytes (outer header IPv4) or %d (IPv6) do not fit the tunnel: IPv6 needs at least 1,280",
			t.mtu-overhead4, t.mtu-overhead6))
	}
	t.message = strings.Join(messages, "; ")
	return t
}

// Interfaces returns the interfaces that have an address of the machine, or that were named,
// sorted, with the data plane's state there.
func (d *DataPlane) Interfaces() []model.InterfaceObserved {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.Clone(d.left)
	for _, v := range d.found {
		o := model.InterfaceObserved{Name: v.Name, Use: model.InterfaceUnused, Message: "this machine balances nothing"}
		if d.attached != nil {
			if d.attached.At(bpf.Ingress)[v.Index] != nil {
				o.Use, o.Message = model.InterfaceTunnels, ""
			}
			if at := d.attached.At(bpf.XDP)[v.Index]; at != nil {
				if o.Use, o.Message = model.InterfaceNative, ""; at.Generic {
					o.Use = model.InterfaceGeneric
				}
			}
			if why := d.attached.Failed(v.Index); why != nil {
				o.Message = why.Error()
			}
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(x, y model.InterfaceObserved) int { return strings.Compare(x.Name, y.Name) })
	return list
}
