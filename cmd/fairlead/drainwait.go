package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
)

const (
	// drainPoll is how often the flows that are left are counted.
	drainPoll = time.Second
	// drainDefault is how long is waited where neither a Machine nor a frontend says.
	drainDefault = 30 * time.Second
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

// left counts the flows that are left, and says whether it is known and whether it has
// begun to drain.
func (d drained) left(rows []model.BackendStatus) (flows uint64, known, begun bool) {
	begun = true
	for _, r := range rows {
		if d.of(r) {
			flows += r.Flows
			known = known || r.Known
			begun = begun && r.Weight == 0
		}
	}
	return flows, known, begun
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
	poll      time.Duration
}

// await shows how many flows are left until there is none and a machine announces nothing, or the time
// is over.
func (d drained) await(ctx context.Context, w io.Writer, planeConsole console.Client, times drainTimes) error {
	began := time.Now()
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
	var handedOver bool   // as it was when it did last
	for {
		rows, err := planeConsole.Backends(ctx, "")
		var m leavingMachine
		if err == nil && d.machine != "" { // after the rows: a plane that has told others of the cordon knows what it waits for
			var s model.Status
			s, err = planeConsole.LeaderStatus(ctx)
			m = d.leaving(s)
		}
		if err != nil {
			err = fmt.Errorf("%s, but how many flows are left is not known: %w", d.done(), asked(err))
			if failing.IsZero() {
				failing = time.Now()
			}
			// Another plane may begin to lead. Of a backend it would know only what the machines
			// say that have found it, and of a plane that never answered nothing is to be hoped.
			if d.machine == "" || shown == "" || time.Since(failing) >= times.withdraws {
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
		if m.handsOver || handedOver && !failing.IsZero() {
			began = time.Now()
		}
		failing, handedOver = time.Time{}, m.handsOver
		limit := d.drainTime(rows)
		if times.limit != nil {
			limit = *times.limit
		}
		flows, known, begun := d.left(rows)
		ends := began.Add(limit)
		rest := max(0, time.Until(ends))
		line := fmt.Sprintf("%d flows are left", flows)
		switch {
		case m.handsOver, m.holds != "" && (flows == 0 || rest == 0):
			line = m.holds
		case !begun:
			line = beingTold
		case !known && d.machine != "" && !slices.ContainsFunc(rows, d.of):
			line = "no VIP leads to its proxy; what it passes on to backends is not counted"
		case !known:
			line = "no data plane counts its flows"
		}
		if err := show(line, fmt.Sprintf(" (%s of the drain time)", rest.Round(time.Second))); err != nil {
			return err
		}
		switch {
		case m.handsOver:
		case m.holds == "" && begun && known && flows == 0:
			_, err := fmt.Fprintf(w, "%s is drained\n", d)
			return err
		case m.holds == "" && begun && !known && rest == 0:
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

// leavingMachine is what the plane knows of a machine that is drained.
type leavingMachine struct {
	handsOver bool   // it goes on with a VIP until another one announces it
	holds     string // why it is not drained, though no flow be left; "": nothing is known of
}

// leaving looks for a machine in what the plane knows.
func (d drained) leaving(s model.Status) (m leavingMachine) {
	var announced []string
	for _, v := range s.VIPs {
		for _, at := range v.At {
			if at.Machine != d.machine {
				continue
			}
			m.handsOver = m.handsOver || at.HandsOver
			if at.State == model.VIPAnnounced {
				announced = append(announced, v.Address.String())
			}
		}
	}
	i := slices.IndexFunc(s.Machines, func(m model.MachineStatus) bool { return m.Name == d.machine })
	switch {
	case m.handsOver:
		m.holds = "it goes on until another machine announces its VIPs"
	case !s.Plane.Leading || s.Machines == nil:
		m.holds = "the plane does not know its machines yet"
	case i < 0:
		m.holds = "there is no such Machine any more: its agent serves on with what it has"
	case !s.Machines[i].Cordoned:
		m.holds = beingTold
	case !s.Machines[i].Connected:
		m.holds = "it is not connected: whether it announces VIPs is not known"
	case s.Machines[i].LastReport.IsZero():
		m.holds = "it has not reported to this plane yet"
	case len(announced) == 1:
		m.holds = "it announces " + announced[0] + " still"
	case len(announced) > 1:
		m.holds = fmt.Sprintf("it announces %s and %d more VIPs still", announced[0], len(announced)-1)
	}
	return m
}
