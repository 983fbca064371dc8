package operate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

// beingTold is the progress until the cordon or the annotation has reached the load balancers.
const beingTold = "the load balancers are being told"

// of says whether a row is of what is drained: of a machine its proxy, since its endpoints
// go on; of a backend not what another Service has at its address.
func (t Target) of(r v1.BackendStatus) bool {
	if t.machine != "" {
		return r.Proxy(r.Frontend) && r.Machine == t.machine
	}
	if o := r.Owner; o.Kind == "Service" && (o.Namespace != t.service.Namespace || o.Name != t.service.Name) {
		return false
	}
	return r.Address.Addr() == t.backend
}

// flowsLeft is what is known of the flows that are left.
type flowsLeft struct {
	flows     uint64
	rows      int      // what is drained is a backend of so many frontends
	known     bool     // of all of these
	begun     bool     // no new flow is sent to it
	uncounted []string // machines that have not told how many they have
}

func (t Target) left(rows []v1.BackendStatus) flowsLeft {
	left := flowsLeft{known: true, begun: true}
	for _, r := range rows {
		if t.of(r) {
			left.rows++
			left.flows += r.Flows
			left.known = left.known && r.Known
			left.begun = left.begun && r.Weight == 0
			left.uncounted = append(left.uncounted, r.Uncounted...)
		}
	}
	left.known = left.known && left.rows > 0
	slices.Sort(left.uncounted)
	left.uncounted = slices.Compact(left.uncounted)
	return left
}

// drainTime is how long its flows are kept: the longest that a frontend says.
func (t Target) drainTime(rows []v1.BackendStatus) time.Duration {
	longest := time.Duration(0)
	for _, r := range rows {
		if t.of(r) {
			longest = max(longest, r.Drain)
		}
	}
	return cmp.Or(longest, defaultDrainTime)
}

// leaving is what the plane knows of a machine that is drained.
type leaving struct {
	handsOver bool   // it announces a VIP until another machine does
	hostsOnly bool   // it has backends and no proxy
	holds     string // why it is not drained even if no flow is left; empty: no reason is known
}

// cordonRevision is the revision by which an agent knows of its cordon: the one that the plane had for it when it was first
// seen to be cordoned. Later revisions, for routes say, are not waited for.
type cordonRevision struct{ epoch, revision uint64 }

// leaving looks for a machine in what the plane knows.
func (t Target) leaving(s v1.Status, told *cordonRevision) (m leaving) {
	if t.machine == "" {
		if !s.Plane.Leading {
			m.holds = "the plane does not know its machines yet"
		}
		return m
	}
	for _, v := range s.VIPs {
		m.handsOver = m.handsOver || slices.ContainsFunc(v.At, func(at v1.VIPAt) bool { return at.Machine == t.machine && at.HandsOver })
	}
	i := slices.IndexFunc(s.Machines, func(m v1.MachineStatus) bool { return m.Name == t.machine })
	switch {
	case m.handsOver:
		m.holds = "it goes on until another machine announces its VIPs"
		return m
	case !s.Plane.Leading || s.Machines == nil:
		m.holds = "the plane does not know its machines yet"
		return m
	case i < 0:
		m.holds = "the Machine was deleted: its agent keeps serving its present configuration"
		return m
	}
	machine := s.Machines[i]
	m.hostsOnly = machine.Proxy.State == proxyOff
	if !machine.Cordoned {
		m.holds = beingTold
		return m
	}
	if told.epoch != s.Plane.Epoch || told.revision == 0 {
		*told = cordonRevision{s.Plane.Epoch, machine.Wanted}
	}
	switch announced := machine.Announces; {
	case !machine.Connected:
		m.holds = "it is not connected: whether it announces VIPs is not known"
	case machine.LastReport.IsZero():
		m.holds = "it has not reported to this plane yet"
	case machine.Delivered < told.revision:
		m.holds = "it has not been told yet"
	case len(announced) == 1:
		m.holds = "it announces " + announced[0].String() + " still"
	case len(announced) > 1:
		m.holds = fmt.Sprintf("it announces %s and %d more VIPs still", announced[0], len(announced)-1)
	case machine.JustCame:
		m.holds = "its agent has just connected: routers may still have routes of the one before"
	}
	return m
}
