package agent

import (
	"context"
	"time"
)

// hears says that a plane is there.
func (a *Agent) hears() bool {
	plane, _ := a.planeLink.status()
	return plane != ""
}

// release takes what is balanced out of the kernel. Other machines that have not noticed that
// this one leaves go on to send it flows, and only what is in its kernel passes them on. So
// it is without a plane, which tells them, and where they reach backends here through a tunnel.
// An agent without a whole state, or one that ends right after it started, does not know yet
// what one before it left there.
func (a *Agent) release(ctx context.Context) {
	began := time.Now()
	switch {
	case len(a.config.Balancing.Planes) == 0:
	case !a.desired.latest().whole:
		a.config.Log.Warn("no complete state was received: load balancing that an earlier agent left in the kernel stays until another agent runs here or you remove it")
		a.leaveKernel()
		return
	case !until(ctx, releaseTime, lookEvery, nil, a.balancer.hasBegun):
		a.config.Log.Warn("data planes have not applied their configuration yet: their load balancing in the kernel stays until another agent runs here or you remove it")
		a.leaveKernel()
		return
	}
	left := releaseTime - time.Since(began)
	switch {
	case a.balancer.hasNeighbours() && !a.drainer.awaitOthers(ctx, a.hears):
		_, trouble := a.planeLink.status()
		a.config.Log.Warn("other machines may not know that this machine leaves: its load balancing stays in the kernel and forwards the packets that they still send, until another agent runs here or you remove it",
			"trouble", trouble)
	case !a.drainer.vacate(ctx):
		a.config.Log.Warn("other machines send flows to backends here through a tunnel: decapsulation stays in the kernel until another agent runs here or you remove it (first drain the backends or remove them from their Services)")
	default:
		a.balancer.release(ctx, left)
		return
	}
	a.leaveKernel()
}

func (a *Agent) leaveKernel() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kernelStays = true
}

// KernelStays reports, after Run, whether the kernel state of data planes is to stay. The agent
// was to leave them (DrainOnStop); or it did not know what they have in the kernel; or other
// machines may still send flows that need it; or the agent ended without a data plane that
// hangs.
func (a *Agent) KernelStays() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kernelStays || !a.config.DrainOnStop || a.balancer.hangs()
}
