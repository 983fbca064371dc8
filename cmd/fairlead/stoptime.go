package main

import (
	"time"

	"fairlead.dev/internal/agent"
	"fairlead.dev/internal/driver/proxy"
)

// stopSpare is for what is computed and written between the steps of a stop, on a busy machine.
const stopSpare = 10 * time.Second

// drainStopTime is the longest that an agent takes to stop with --on-stop=drain. drain is the
// drain time of the Machine, proxyDrain is --drain-time. Whoever ends the process by force
// must not do so before.
func drainStopTime(drain, proxyDrain time.Duration) time.Duration {
	ends := time.Duration(len(planeMakers)) * closeTime
	return agent.DrainStop(drain) + max(proxyDrain+proxy.KillAfter, agent.EndStop) + ends + stopSpare
}

// leaveStopTime is the longest that an agent takes to stop with --on-stop=leave, in whose
// process a plane may be.
func leaveStopTime() time.Duration {
	return agent.EndStop + time.Duration(len(planeMakers))*closeTime + stopGrace + stopSpare
}
