package health

import (
	"time"

	"fairlead.dev/internal/model"
)

// tally is what the answers of one backend come to.
type tally struct {
	health model.Health // unknown before the first answer
	since  time.Time    // when health became what it is
	streak uint32       // answers in a row that speak against health
	// untried is how many bad answers are wanting until as many came as take a backend out that
	// works, where the first answer was a bad one.
	untried uint32
	// sound is when the last probe began that was answered well, or the first one.
	sound   time.Time
	message string // the last failure
}

// add takes the outcome of a probe that began and ended at these times; an empty failure
// is a good answer. It returns whether the health is another one now, or is sure now. The first
// outcome decides at once; of a presumed check the first good one.
func (t *tally) add(h model.HealthCheck, failure string, began, ended time.Time) bool {
	says, needs := model.Healthy, max(h.Healthy, 1)
	if failure != "" {
		says, needs = model.Unhealthy, max(h.Unhealthy, 1)
		t.message = failure
	}
	if failure == "" || t.sound.IsZero() {
		t.sound = began
	}
	if says == model.Healthy && t.untried > 0 {
		t.untried = max(h.Unhealthy, 1) - 1 // not in a row
	}
	if t.health == says {
		t.streak = 0
		if says == model.Healthy || t.untried == 0 {
			return false
		}
		t.untried--
		return t.untried == 0
	}
	if h.Presumed && t.health == model.HealthUnknown && says == model.Unhealthy {
		return false // something may keep this machine out, and not clients
	}
	t.streak++
	if t.health != model.HealthUnknown && t.streak < needs {
		return false
	}
	t.untried = 0
	if t.health == model.HealthUnknown && says == model.Unhealthy {
		t.untried = needs - 1
	}
	t.health, t.since, t.streak = says, ended, 0
	return true
}

// inconclusive says that a probe that took so long says nothing of the backend: nobody asked
// for the check, and this machine was too busy to hear an answer in time.
func inconclusive(h model.HealthCheck, kind string, took time.Duration) bool {
	return h.Presumed && kind == FailTimeout && took > h.Timeout+h.Timeout/4
}

// next is when to ask again after a probe that began and ended at these times. random is
// from 0 to 1.
//
// A backend that fails is asked so that its last failure is known when as many intervals
// are over since it was well, though no answer costs the whole timeout: it is out then,
// and not a timeout later. That holds while a timeout is at most half of the interval. One that
// has failed from the first probe is asked again soon.
func (t *tally) next(h model.HealthCheck, began, ended time.Time, random float64) time.Time {
	usual := began.Add(h.Interval - time.Duration(float64(h.Interval)*float64(h.Jitter)/100*random))
	if t.health == model.Healthy && t.streak > 0 {
		early := t.sound.Add(time.Duration(t.streak+1)*h.Interval - min(h.Timeout, h.Interval/2))
		if early.Before(usual) {
			usual = early
		}
	}
	if t.untried > 0 { // it is to be sure soon, however long the interval is
		if soon := began.Add(min(h.Interval, max(h.Timeout, time.Second))); soon.Before(usual) {
			usual = soon
		}
	}
	if usual.Before(ended) {
		return ended
	}
	return usual
}
