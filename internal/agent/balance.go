package agent

import (
	"context"

	"fairlead.dev/internal/model"
)

// DataPlane carries frontends out in the kernel. Its methods may be called from any
// goroutine; only Run and Set should take long, and the agent's reports wait for none. What it has put into the kernel stays when
// the process ends, for the next one to take over.
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

// Balancing is what balances flows at a machine. Without data planes it does nothing.
type Balancing struct {
	// Planes that the machine may use, the preferred first.
	Planes []BalancingPlane
	// Changed gets a token from the data planes when what they observe may differ.
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
