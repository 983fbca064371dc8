package wire

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// FrontendName is the resource name of a frontend and of its backends.
func FrontendName(k model.FrontendKey) string { return k.String() }

// Frontend is what a machine is told about a frontend. listener names the resource of a
// listener. Targets, weights and who is drained are said of each backend.
func Frontend(f *model.Frontend, listener func(model.ListenerID) string) *agentv1.Frontend {
	out := &agentv1.Frontend{
		Owner:     f.Owner.String(),
		Machines:  f.Machines,
		Mode:      string(f.Mode),
		DataPlane: string(f.DataPlane),
		Hash:      string(f.Hash),
		Affinity:  duration(f.Affinity),
		NewFlows:  f.NewFlows,
		Drain:     duration(f.Drain),
		LocalOnly: f.LocalOnly,
		Panic:     uint32(f.Panic),
		Scheduler: f.Scheduler,
		MaxFlows:  f.MaxFlows,
		Check:     healthCheck(f.Check),
	}
	if f.Listener != "" {
		out.Listener = listener(f.Listener)
	}
	for _, p := range f.Sources {
		out.Sources = append(out.Sources, p.String())
	}
	if f.QUIC != nil {
		out.Quic = &agentv1.QuicServer{Offset: uint32(f.QUIC.Offset), Length: uint32(f.QUIC.Length)}
	}
	return out
}

// FrontendOf is what a Frontend of that name says. Its listener is the name of a
// resource. What cannot be read is an error, so that no client is let in by mistake.
func FrontendOf(name string, f *agentv1.Frontend) (*model.Frontend, error) {
	key, err := model.ParseFrontend(name)
	if err != nil {
		return nil, err
	}
	out := &model.Frontend{
		FrontendKey: key,
		Owner:       objectOf(f.GetOwner()),
		Listener:    model.ListenerID(f.GetListener()),
		Machines:    f.GetMachines(),
		Mode:        model.ForwardMode(f.GetMode()),
		DataPlane:   model.DataPlaneKind(f.GetDataPlane()),
		Hash:        model.FlowHash(f.GetHash()),
		Affinity:    f.GetAffinity().AsDuration(),
		NewFlows:    f.GetNewFlows(),
		Drain:       f.GetDrain().AsDuration(),
		LocalOnly:   f.GetLocalOnly(),
		Panic:       uint8(min(f.GetPanic(), 100)),
		Scheduler:   f.GetScheduler(),
		MaxFlows:    f.GetMaxFlows(),
		Check:       healthCheckOf(f.GetCheck()),
	}
	for _, text := range f.GetSources() {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("sources of frontend %s: %w", name, err)
		}
		out.Sources = append(out.Sources, p)
	}
	if q := f.GetQuic(); q != nil {
		out.QUIC = &model.QUICServer{Offset: uint8(q.GetOffset()), Length: uint8(q.GetLength())}
	}
	return out, nil
}

// FrontendBackends is what every machine concerned is told about the backends of a
// frontend.
func FrontendBackends(backends []model.FrontendBackend) *agentv1.FrontendBackends {
	out := &agentv1.FrontendBackends{}
	for _, b := range backends {
		out.Backends = append(out.Backends, &agentv1.FrontendBackend{
			Address:   b.Address.Addr().AsSlice(),
			Port:      uint32(b.Address.Port()),
			Machine:   b.Machine,
			Weight:    b.Weight,
			HopWeight: b.HopWeight,
			State:     b.State.String(),
			Health:    string(b.Health),
			Backup:    b.Backup,
			Standby:   b.Standby,
		})
	}
	return out
}

// FrontendBackendsOf is what FrontendBackends of that name say, sorted and unique. A
// state that is not known is unready.
func FrontendBackendsOf(name string, f *agentv1.FrontendBackends) ([]model.FrontendBackend, error) {
	out := make([]model.FrontendBackend, 0, len(f.GetBackends()))
	for _, b := range f.GetBackends() {
		at, ok := addrPort(b.GetAddress(), b.GetPort())
		if !ok {
			return nil, fmt.Errorf("a backend of frontend %s has an address of %d bytes and port %d", name, len(b.GetAddress()), b.GetPort())
		}
		out = append(out, model.FrontendBackend{
			Address:   at,
			Machine:   b.GetMachine(),
			Weight:    b.GetWeight(),
			HopWeight: max(b.GetHopWeight(), b.GetWeight()),
			State:     backendState(b.GetState()),
			Health:    model.Health(b.GetHealth()),
			Backup:    b.GetBackup(),
			Standby:   b.GetStandby(),
		})
	}
	slices.SortStableFunc(out, model.FrontendBackend.Compare)
	return slices.CompactFunc(out, func(a, b model.FrontendBackend) bool { return a.Compare(b) == 0 }), nil
}

// Node is what a machine is told about another one.
func Node(n model.Node) *agentv1.Node {
	return &agentv1.Node{Tunnel4: n.Tunnel4.AsSlice(), Tunnel6: n.Tunnel6.AsSlice(), Decaps: n.Decaps}
}

// NodeOf is what a Node of that name says. An address of the wrong family is none.
func NodeOf(name string, n *agentv1.Node) *model.Node {
	out := &model.Node{Name: name, Decaps: n.GetDecaps()}
	if a := addr(n.GetTunnel4()); a.Is4() {
		out.Tunnel4 = a
	}
	if a := addr(n.GetTunnel6()); a.Is6() {
		out.Tunnel6 = a
	}
	return out
}

// Check is what a machine is told about a backend that it checks. Its resource name is
// the check's ID.
func Check(c model.Check) *agentv1.Check {
	return &agentv1.Check{
		Address: c.Target.Addr().AsSlice(), Port: uint32(c.Target.Port()), How: healthCheck(&c.HealthCheck), Prompt: c.Prompt, Namespaces: c.Namespaces,
	}
}

// CheckOf is what a Check of that ID says.
func CheckOf(id string, c *agentv1.Check) (model.Check, error) {
	at, ok := addrPort(c.GetAddress(), c.GetPort())
	if !ok {
		return model.Check{}, fmt.Errorf("check %s has an address of %d bytes and port %d", id, len(c.GetAddress()), c.GetPort())
	}
	if c.GetHow() == nil {
		return model.Check{}, fmt.Errorf("check %s does not say how", id)
	}
	return model.Check{ID: id, Target: at, HealthCheck: *healthCheckOf(c.GetHow()), Prompt: c.GetPrompt(), Namespaces: c.GetNamespaces()}, nil
}

func healthCheck(c *model.HealthCheck) *agentv1.HealthCheck {
	if c == nil {
		return nil
	}
	out := &agentv1.HealthCheck{
		Kind:      string(c.Kind),
		Port:      uint32(c.Port),
		Path:      c.Path,
		Host:      c.Host,
		Interval:  duration(c.Interval),
		Timeout:   duration(c.Timeout),
		Jitter:    uint32(c.Jitter),
		Unhealthy: c.Unhealthy,
		Healthy:   c.Healthy,
		Service:   c.Service,
		Send:      c.Send,
		Expect:    c.Expect,

		ServerName: c.ServerName, SendProxyProtocol: c.SendProxyProtocol, Presumed: c.Presumed,
	}
	for _, r := range c.Codes {
		out.Codes = append(out.Codes, &agentv1.CodeRange{First: uint32(r[0]), Last: uint32(r[1])})
	}
	return out
}

func healthCheckOf(c *agentv1.HealthCheck) *model.HealthCheck {
	if c == nil {
		return nil
	}
	out := &model.HealthCheck{
		Kind:      model.CheckKind(c.GetKind()),
		Port:      uint16(c.GetPort()),
		Path:      c.GetPath(),
		Host:      c.GetHost(),
		Interval:  c.GetInterval().AsDuration(),
		Timeout:   c.GetTimeout().AsDuration(),
		Jitter:    uint8(min(c.GetJitter(), 100)),
		Unhealthy: c.GetUnhealthy(),
		Healthy:   c.GetHealthy(),
		Service:   c.GetService(),
		Send:      c.GetSend(),
		Expect:    c.GetExpect(),

		ServerName: c.GetServerName(), SendProxyProtocol: c.GetSendProxyProtocol(), Presumed: c.GetPresumed(),
	}
	for _, r := range c.GetCodes() {
		out.Codes = append(out.Codes, [2]uint16{uint16(r.GetFirst()), uint16(r.GetLast())})
	}
	return out
}

func backendState(text string) model.BackendState {
	for _, s := range []model.BackendState{model.BackendReady, model.BackendDraining} {
		if s.String() == text {
			return s
		}
	}
	return model.BackendUnready
}

// objectOf reads what Object.String writes.
func objectOf(text string) model.Object {
	kind, name, _ := strings.Cut(text, " ")
	o := model.Object{Kind: kind, Name: name}
	if namespace, name, found := strings.Cut(name, "/"); found {
		o.Namespace, o.Name = namespace, name
	}
	return o
}

func addrPort(address []byte, port uint32) (netip.AddrPort, bool) {
	a := addr(address)
	return netip.AddrPortFrom(a, uint16(port)), a.IsValid() && port <= math.MaxUint16
}

// duration leaves out what is nothing: there are thousands of frontends.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
