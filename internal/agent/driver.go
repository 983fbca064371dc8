package agent

import (
	"context"
	"net/netip"

	"fairlead.dev/internal/model"
)

// The interfaces of what the agent drives, stated here and implemented elsewhere: the proxy,
// the network, data planes and checks.

// Proxy is the machine's Envoy, whose configuration comes from the socket at
// SocketPath. Its methods may be called from any goroutine.
type Proxy interface {
	// Run keeps the proxy running until ctx is done, and then leaves or stops it as
	// it was told to. changed is called when Status may differ; it does not block. An
	// error means that the proxy can never run.
	Run(ctx context.Context, changed func()) error
	// Status does not block. Its State is one of model.ProxyStatus's names.
	Status() model.ProxyStatus
	// Warming names the clusters that the proxy has taken but does not use yet.
	Warming(ctx context.Context) ([]string, error)
	// Active names the clusters that the proxy uses.
	Active(ctx context.Context) ([]string, error)
}

// RequestCounter is a Proxy that counts requests.
type RequestCounter interface {
	// Traffic is what the proxy has counted since it began.
	Traffic(ctx context.Context) (model.Traffic, error)
}

// Witness is a Proxy that reports which of the accepted resources it uses.
type Witness interface {
	// Listeners returns the listeners that accept connections, and the prerequisites of
	// those that do not yet, or not in their newest version.
	Listeners(ctx context.Context) (serving map[string]struct{}, warming map[string][]string, err error)
	// Routes are the versions of the named route configurations that requests find.
	Routes(ctx context.Context, names []string) (map[string]string, error)
	// Replace ends the proxy gently, and another one is started. It does not block.
	Replace(reason string)
}

// Ejector is a Proxy that takes backends out by itself when requests to them fail.
type Ejector interface {
	// Ejected are those that are out, sorted. It does not block.
	Ejected() []model.Ejection
}

// Drainer ends the proxy's connections gently.
type Drainer interface {
	// Drain has the proxy close each connection after the answer that is under way
	// ("Connection: close", GOAWAY), and take new ones as before; false takes it back.
	Drain(ctx context.Context, on bool) error
	// Connections that clients have to the proxy, and how many it has taken so far.
	Connections(ctx context.Context) (open, taken uint64, err error)
}

// States of a proxy: it takes requests; there is none on purpose, at a machine that only has
// backends, and at an edge.
const (
	proxyReady = "ready"
	proxyOff   = "off"
	proxyNone  = "none"
)

// unproxied is why an edge without a proxy does not serve listeners.
const unproxied = "this machine runs no proxy (--envoy none)"

// NoProxy is the Proxy of a machine that only has backends, or of an edge that balances
// without one: the agent runs no Envoy, and is ready without.
type NoProxy struct {
	Edge bool
}

// Run implements Proxy.
func (NoProxy) Run(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

// Status implements Proxy.
func (p NoProxy) Status() model.ProxyStatus {
	if p.Edge {
		return model.ProxyStatus{State: proxyNone}
	}
	return model.ProxyStatus{State: proxyOff}
}

// Warming implements Proxy.
func (NoProxy) Warming(context.Context) ([]string, error) { return nil, nil }

// Active implements Proxy.
func (NoProxy) Active(context.Context) ([]string, error) { return nil, nil }

// Speaker advertises prefixes by BGP. Set may be called again with the same, and before
// Run; no method waits for a peer, but Run and Withdraw.
type Speaker interface {
	// Run keeps the sessions until ctx is done.
	Run(ctx context.Context) error
	Set(model.Speaking)
	// Sessions are sorted by peer.
	Sessions() []model.Session
	// Withdraw takes back every prefix and returns when the peers have been told.
	Withdraw(ctx context.Context) error
}

// Segment owns VIPs on a flat network. Set may be called again with the same.
type Segment interface {
	Run(ctx context.Context) error
	Set([]model.Candidacy)
	// Status is sorted by address.
	Status() []model.VIPObserved
}

// Loopback holds the advertised VIPs, so that the machine's sockets receive packets to
// them. Set replaces the held addresses, and leaves those of keep unchanged; an error of
// one address does not affect the others. Refused are the addresses that the last Set
// could not hold, with the reason.
type Loopback interface {
	Set(want []netip.Addr, keep ...netip.Addr) error
	Refused() map[netip.Addr]error
}

// Network makes a machine's VIPs reachable. A nil driver does nothing.
type Network struct {
	Speaker  Speaker
	Segment  Segment
	Loopback Loopback
	// Changed gets a token from the drivers when their observations may have changed.
	Changed chan struct{}
}

// DataPlane balances frontends in the kernel. Its methods may be called from any goroutine; only Run and Set should
// take long, and the agent's reports wait for none. Its programs and rules stay in the kernel when the process ends,
// for the next process to take over.
type DataPlane interface {
	// Run keeps the kernel as the last Set said, also when links, routes and neighbours
	// change, until ctx is done. An error means that it can never run.
	Run(ctx context.Context) error
	// Set is all that the data plane is to do: it may be called again with the same, and
	// before Run. Frontends that it holds and that are not in it go. One that cannot be
	// carried out says so in Observed and leaves the others alone; an error is about all of
	// them, leaves what was there, and is tried again.
	Set(b model.Balancing) error
	// Observed are the frontends of the last Set, sorted by key.
	Observed() []model.FrontendObserved
	// Supports is nil if this machine and this data plane can carry the frontend out, and
	// says why not and what it needs otherwise. It does not change the kernel, and may be
	// asked about frontends that are never set.
	Supports(f *model.Balanced) error
}

// Inspector is a data plane that counts.
type Inspector interface {
	// Figures are those of the frontends since the data plane was made, sorted by key, and
	// the packets that were dropped, by the name of the reason. With an error, flows of those
	// that it returns may lack.
	Figures() ([]model.FrontendFigures, map[string]uint64, error)
	// Flows of the flow tables in no order, and whether there are more.
	Flows(q model.FlowQuery) (flows []model.Flow, truncated bool, err error)
}

// Tunneler is a data plane that takes packets out of tunnels: the backends of this machine
// can be reached by model.ModeDSRGeneve.
type Tunneler interface {
	// Tunnel is the largest packet that the way between the machines carries, bytes, and
	// what does not work, if anything. ok is false where it takes nothing out.
	Tunnel() (mtu uint32, message string, ok bool)
}

// Weigher is a data plane that knows how much memory of the kernel its maps hold.
type Weigher interface {
	MapBytes() uint64
}

// Attached is a data plane with programs at interfaces.
type Attached interface {
	// Interfaces that hold an address of the machine, sorted, with what is done there.
	Interfaces() []model.InterfaceObserved
}

// Balancing balances flows at a machine. Without data planes it does nothing.
type Balancing struct {
	// Planes that the machine may use, the preferred first.
	Planes []BalancingPlane
	// Changed gets a token from the data planes when their observations may have changed.
	Changed chan struct{}
	// Connections counts those that the machine's sockets have at each of some frontends of
	// TCP; optional.
	Connections func(...model.FrontendKey) (map[model.FrontendKey]int, error)
}

// BalancingPlane is a data plane with its kind.
type BalancingPlane struct {
	Kind model.DataPlaneKind
	DataPlane
}

// Arrivals is a data plane that knows how many packets came for the VIPs of this machine by
// themselves, rather than through a tunnel.
type Arrivals interface {
	Arrived() (uint64, error)
}

// Checker asks backends whether they work. Its methods may be called from any goroutine.
type Checker interface {
	// Run checks until ctx is done.
	Run(ctx context.Context) error
	// Set is all that is to be checked, sorted by ID. It does not block, and keeps what it
	// knows of a check that it had before.
	Set([]model.Check)
	// Results are sorted by ID.
	Results() []model.CheckResult
	// Result is that of one check; HealthUnchecked where there is none of that ID.
	Result(id string) model.CheckResult
}

// Checking checks backends at a machine. Without a Checker nothing is checked.
type Checking struct {
	Checker Checker
	// Changed gets a token from the checker when its results may differ.
	Changed chan struct{}
}

// CheckCounter is a Checker that counts its probes.
type CheckCounter interface {
	// Figures returns the finished probes, by kind; underWay is the number of the others. It
	// does not block.
	Figures() (list []model.CheckFigures, underWay int)
}
