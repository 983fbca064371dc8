package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
)

const (
	// drainPoll is how often the flows that are left are counted.
	drainPoll = time.Second
	// drainDefault is how long is waited where neither a Machine nor a frontend says.
	drainDefault = 30 * time.Second
	// silenceTime is how long a plane is asked that does not answer any more.
	silenceTime = 30 * time.Second
	// settleTime is how long a machine may show what it counted before: figures are 5 s old at most.
	settleTime = 5*time.Second + drainPoll
	// withdrawTime is how long a machine may announce its VIPs after the drain time: its agent counts
	// from when the other machines pass on what it has (10 s at most), and its proxy falls silent (15 s).
	withdrawTime = 30 * time.Second

	beingTold = "the load balancers are being told"
)

// of says whether a row is of what is drained: of a machine its proxy, since its endpoints
// go on; of a backend not what another Service has at its address.
func (d drained) of(r model.BackendStatus) bool {
	if d.machine != "" {
		return r.Proxy(r.Frontend) && r.Machine == d.machine
	}
	if o := r.Owner; o.Kind == "Service" && (o.Namespace != d.service.Namespace || o.Name != d.service.Name) {
		return false
	}
	return r.Address.Addr() == d.backend
}

// flowsLeft is what is known of the flows that are left.
type flowsLeft struct {
	flows     uint64
	rows      int      // what is drained is a backend of so many frontends
	known     bool     // of all of these
	begun     bool     // no new flow is sent to it
	uncounted []string // machines that have not told how many they have
}

func (d drained) left(rows []model.BackendStatus) flowsLeft {
	left := flowsLeft{known: true, begun: true}
	for _, r := range rows {
		if d.of(r) {
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
func (d drained) drainTime(rows []model.BackendStatus) time.Duration {
	longest := time.Duration(0)
	for _, r := range rows {
		if d.of(r) {
			longest = max(longest, r.Drain)
		}
	}
	return cmp.Or(longest, drainDefault)
}

// drainTimes are how long is waited.
type drainTimes struct {
	limit     *time.Duration // for flows to end; nil: the drain time of its frontends
	withdraws time.Duration  // after that, for a machine to withdraw its VIPs
	handover  time.Duration  // before it, for others to announce them; 0: as long as it takes
	silence   time.Duration  // for a plane that has answered to do so again
	settle    time.Duration  // for figures to be newer than what they are to show
	poll      time.Duration
}

// await shows how many flows are left until there is none and a machine announces nothing, or the time
// is over.
func (d drained) await(ctx context.Context, w io.Writer, planeConsole console.Client, times drainTimes) error {
	start := time.Now()
	began := start // the drain time
	ticker := time.NewTicker(times.poll)
	defer ticker.Stop()
	shown := ""
	show := func(line, more string) (err error) {
		if line != shown {
			shown = line
			_, err = fmt.Fprintln(w, line+more)
		}
		return err
	}
	var failing time.Time // since when the plane does not answer
	var ready time.Time   // since when only flows are waited for
	var handedOver bool   // as it was when the plane answered last
	var told toldOf
	for {
		asking := time.Now()
		rows, err := planeConsole.Backends(ctx, "")
		var s model.Status
		if err == nil { // after the rows: a plane that has told others of the cordon knows what it waits for
			s, err = planeConsole.LeaderStatus(ctx)
		}
		if err != nil {
			err = fmt.Errorf("%s, but how many flows are left is not known: %w", d.done(), asked(err))
			if failing.IsZero() {
				failing = asking
			}
			// Another plane may begin to lead. Of a backend it would know only what the machines
			// say that have found it, and of a plane that never answered nothing is to be hoped.
			if d.machine == "" || shown == "" || time.Since(failing) >= times.silence {
				return err
			}
			if err := show("the plane does not answer", ""); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			case <-ticker.C:
			}
			continue
		}
		left, m := d.left(rows), d.leaving(s, &told)
		switch {
		case m.holds != "":
		case !left.begun:
			m.holds = beingTold
		case len(left.uncounted) > 0:
			m.holds = strings.Join(left.uncounted, ", ") + " does not say how many flows it has"
		}
		if m.handsOver || handedOver && !failing.IsZero() {
			began = time.Now()
		}
		failing, handedOver = time.Time{}, m.handsOver
		if m.holds != "" {
			ready = time.Time{}
		} else if ready.IsZero() {
			ready = time.Now()
		}
		limit := d.drainTime(rows)
		if times.limit != nil {
			limit = *times.limit
		}
		ends := began.Add(limit)
		rest := max(0, time.Until(ends))
		line := fmt.Sprintf("%d flows are left", left.flows)
		switch {
		case m.handsOver, m.holds != "" && (left.flows == 0 || rest == 0):
			line = m.holds
		case !left.begun:
			line = beingTold
		case left.known || left.flows > 0:
		case d.machine != "" && left.rows == 0:
			line = "no VIP leads to its proxy; what it passes on to backends is not counted"
		default:
			line = "no data plane counts its flows"
		}
		if err := show(line, fmt.Sprintf(" (%s of the drain time)", rest.Round(time.Second))); err != nil {
			return err
		}
		none := !ready.IsZero() && left.flows == 0
		switch {
		case m.handsOver && times.handover > 0 && time.Since(start) >= times.handover:
			return fmt.Errorf("%s, but not drained: %s", d.done(), line)
		case m.handsOver:
		case none && left.known && time.Since(ready) >= times.settle:
			_, err := fmt.Fprintf(w, "%s is drained\n", d)
			return err
		case none && left.known:
		case none && rest == 0:
			_, err := fmt.Fprintf(w, "the drain time of %s is over\n", d)
			return err
		case m.holds == "" && rest == 0, time.Until(ends.Add(times.withdraws)) <= 0:
			return fmt.Errorf("the drain time of %s is over: %s", d, line)
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s still: %s", d.done(), line), ctx.Err())
		case <-ticker.C:
		}
	}
}

// leaving is what the plane knows of a machine that is drained.
type leaving struct {
	handsOver bool   // it goes on with a VIP until another one announces it
	holds     string // why it is not drained, though no flow be left; "": nothing is known of
}

// toldOf is what an agent is to hold for it to know of a cordon: what the plane had for it when it was
// seen to be cordoned. What comes later, for routes say, is not waited for.
type toldOf struct{ epoch, revision uint64 }

// leaving looks for a machine in what the plane knows.
func (d drained) leaving(s model.Status, told *toldOf) (m leaving) {
	if d.machine == "" {
		if !s.Plane.Leading {
			m.holds = "the plane does not know its machines yet"
		}
		return m
	}
	for _, v := range s.VIPs {
		m.handsOver = m.handsOver || slices.ContainsFunc(v.At, func(at model.VIPAt) bool { return at.Machine == d.machine && at.HandsOver })
	}
	i := slices.IndexFunc(s.Machines, func(m model.MachineStatus) bool { return m.Name == d.machine })
	switch {
	case m.handsOver:
		m.holds = "it goes on until another machine announces its VIPs"
		return m
	case !s.Plane.Leading || s.Machines == nil:
		m.holds = "the plane does not know its machines yet"
		return m
	case i < 0:
		m.holds = "there is no such Machine any more: its agent serves on with what it has"
		return m
	}
	machine := s.Machines[i]
	if !machine.Cordoned {
		m.holds = beingTold
		return m
	}
	if told.epoch != s.Plane.Epoch || told.revision == 0 {
		*told = toldOf{s.Plane.Epoch, machine.Wanted}
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
