package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

const (
	// pollTime is how often the flows that are left are counted.
	pollTime = time.Second
	// defaultDrainTime is the drain time where neither a Machine nor a frontend has one.
	defaultDrainTime = 30 * time.Second
	// silenceTime is how long a plane is asked that does not answer any more.
	silenceTime = 30 * time.Second
	// confirmTime is how long a machine may show an earlier count: figures are 5 s old at most.
	confirmTime = 5*time.Second + pollTime
	// withdrawTime is how long a machine may announce its VIPs after the drain time: its agent counts
	// from when the other machines pass on its flows (10 s at most), and its proxy falls silent (15 s).
	withdrawTime = 30 * time.Second
)

// Times bound the wait for a drain.
type Times struct {
	limit     *time.Duration // for flows to end; nil: the drain time of the target's frontends
	withdraws time.Duration  // after that, for a machine to withdraw its VIPs
	handover  time.Duration  // before it, for others to announce them; 0: as long as it takes
	silence   time.Duration  // for a plane that has answered to do so again
	confirm   time.Duration  // for figures to be newer than the order
	poll      time.Duration
}

// NewTimes returns how long a drain is waited for: the drain time that Drain returned, or the timeout instead of it if
// there is one. Agents keep to the Machine's drain time nevertheless.
func NewTimes(drainTime *time.Duration, timeout time.Duration) Times {
	t := Times{limit: drainTime, withdraws: withdrawTime, silence: silenceTime, confirm: confirmTime, poll: pollTime}
	if timeout > 0 {
		if drainTime != nil {
			t.withdraws += max(0, *drainTime-timeout)
		}
		t.limit, t.handover = &timeout, timeout+withdrawTime
	}
	return t
}

// Progress is the state of a drain at one moment.
type Progress struct {
	Text string
	// Rest is left of the drain time. It is negative where that is not known.
	Rest time.Duration
}

// Await follows a drain, and shows its progress every second, until no flow is left and a machine announces nothing, or
// the time is over. The outcome says how it ended well: the target is drained, or its drain time is over and flows are
// not counted.
func (t Target) Await(ctx context.Context, plane Plane, times Times, show func(Progress) error) (outcome string, err error) {
	ticker := time.NewTicker(times.poll)
	defer ticker.Stop()
	w := wait{target: t, times: times, start: time.Now()}
	w.began = w.start
	for {
		a := answer{asked: time.Now()}
		a.rows, a.err = plane.Backends(ctx, "")
		if a.err == nil { // after the rows: a plane that has told others of the cordon knows what it waits for
			a.status, a.err = plane.LeaderStatus(ctx)
		}
		a.at = time.Now()
		next := w.step(a)
		if next.progress.Text != "" {
			if err := show(next.progress); err != nil {
				return "", err
			}
		}
		if next.over {
			return next.outcome, next.err
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(next.err, ctx.Err())
		case <-ticker.C:
		}
	}
}

// answer is what the plane answered.
type answer struct {
	asked, at time.Time // when the question began, and when the answer was there
	rows      []v1.BackendStatus
	status    v1.Status
	err       error
}

// wait is what is known of a drain that is waited for.
type wait struct {
	target Target
	times  Times

	start      time.Time
	began      time.Time // of the drain time
	answered   bool      // the plane has
	failing    time.Time // since when it does not; zero: it does
	ready      time.Time // since when only flows are waited for; zero: something else holds
	handedOver bool      // by the last answer the machine hands its VIPs over
	cordon     cordonRevision
}

// step is what follows from an answer.
type step struct {
	progress Progress // without a text there is nothing to show
	over     bool
	outcome  string // it is over, and well
	err      error  // it is over, and not well; or, while it is not over, what an end of the wait leaves behind
}

// step follows one answer of the plane.
func (w *wait) step(a answer) step {
	if a.err != nil {
		return w.unanswered(a)
	}
	d := w.target
	left, m := d.left(a.rows), d.leaving(a.status, &w.cordon)
	switch {
	case m.holds != "":
	case !left.begun:
		m.holds = beingTold
	case len(left.uncounted) > 0:
		m.holds = strings.Join(left.uncounted, ", ") + " does not say how many flows it has"
	}
	if m.handsOver || w.handedOver && !w.failing.IsZero() {
		w.began = a.at
	}
	w.answered, w.failing, w.handedOver = true, time.Time{}, m.handsOver
	if m.holds != "" {
		w.ready = time.Time{}
	} else if w.ready.IsZero() {
		w.ready = a.at
	}
	limit := d.drainTime(a.rows)
	if w.times.limit != nil {
		limit = *w.times.limit
	}
	ends := w.began.Add(limit)
	rest := max(0, ends.Sub(a.at))
	line := w.line(left, m, rest)
	next := step{progress: Progress{Text: line, Rest: rest}, over: true}
	none := !w.ready.IsZero() && left.flows == 0
	counted := none && left.known
	switch {
	case m.handsOver && w.times.handover > 0 && a.at.Sub(w.start) >= w.times.handover:
		next.err = fmt.Errorf("%s, but not drained: %s", d.Ordered(), line)
	case m.handsOver, counted && a.at.Sub(w.ready) < w.times.confirm:
		next.over = false
	case counted:
		next.outcome = d.String() + " is drained"
	case none && rest == 0:
		next.outcome = w.uncounted(left, m)
	case m.holds == "" && rest == 0, !a.at.Before(ends.Add(w.times.withdraws)):
		next.err = fmt.Errorf("the drain time of %s is over: %s", d, line)
	default:
		next.over = false
	}
	if !next.over {
		next.err = fmt.Errorf("%s still: %s", d.Ordered(), line)
	}
	return next
}

// uncounted is the outcome of a drain whose flows nobody counts, once its drain time is over. A machine to whose proxy no
// VIP leads is not said to be drained: backends on it are not part of its drain, and flows to them are not known.
func (w *wait) uncounted(left flowsLeft, m leaving) string {
	over := fmt.Sprintf("the drain time of %s is over", w.target)
	const drainEach = "drain each with 'fairlead drain SERVICE/ADDRESS'"
	switch {
	case w.target.machine == "":
		return over + "; no data plane counts its flows"
	case left.rows > 0:
		return fmt.Sprintf("%s is drained: it announces no VIP. The drain time is over; its flows cannot be counted", w.target)
	case m.hostsOnly:
		return over + ": it announces no VIP; its backends go on to take flows, which are not counted for a machine: " + drainEach
	default:
		return over + ": it announces no VIP; flows that it forwards to backends are not counted. Backends on it, if any, go on to take flows: " + drainEach
	}
}

// line says what is waited for.
func (w *wait) line(left flowsLeft, m leaving, rest time.Duration) string {
	switch {
	case m.handsOver, m.holds != "" && (left.flows == 0 || rest == 0):
		return m.holds
	case !left.begun:
		return beingTold
	case left.known || left.flows > 0:
		return fmt.Sprintf("%d flows are left", left.flows)
	case w.target.machine != "" && left.rows == 0 && m.hostsOnly:
		return "it has backends only; their flows are not counted for a machine"
	case w.target.machine != "" && left.rows == 0:
		return "no VIP leads to its proxy; flows that it forwards to backends are not counted"
	default:
		return "no data plane counts its flows"
	}
}

// unanswered is the step of a plane that does not answer. Another plane may begin to lead. Of a backend it would know only
// what the machines say that have found it, and from a plane that never answered no answer is to be expected.
func (w *wait) unanswered(a answer) step {
	err := fmt.Errorf("%s, but how many flows are left is not known: %w", w.target.Ordered(), a.err)
	if w.failing.IsZero() {
		w.failing = a.asked
	}
	if w.target.machine == "" || !w.answered || a.at.Sub(w.failing) >= w.times.silence {
		return step{over: true, err: err}
	}
	return step{progress: Progress{Text: "the plane does not answer", Rest: -1}, err: err}
}
