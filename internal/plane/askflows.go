package plane

import (
	"context"
	"fmt"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
)

// maxFlowQuestions is how many questions about flows are asked or wait at once. A machine that does not answer holds
// each for southbound.Patience, and the last must be answered before a console gives up.
const maxFlowQuestions = 3

// flowQueue has questions about flows wait for each other: a machine answers one at a time.
type flowQueue struct {
	places chan struct{} // holds one for each question that is asked or waits
	turn   chan struct{} // holds one while machines are asked
}

func newFlowQueue() flowQueue {
	return flowQueue{places: make(chan struct{}, maxFlowQuestions), turn: make(chan struct{}, 1)}
}

// flows are the answers of the machines, or of one if it is named, and the names of those that were asked and did not
// answer in time, sorted. An error means that the question was not asked, or not to its end.
func (p *Plane) flows(ctx context.Context, machine string, q model.FlowQuery) (answers map[string]southbound.Flows, silent []string, err error) {
	select {
	case p.flowing.places <- struct{}{}:
		defer func() { <-p.flowing.places }()
	default:
		return nil, nil, flowsHeld(fmt.Sprintf("%d questions about flows are asked already, one after another", maxFlowQuestions), p.server.Awaited())
	}
	select {
	case p.flowing.turn <- struct{}{}:
		defer func() { <-p.flowing.turn }()
	case <-ctx.Done():
		return nil, nil, flowsHeld("earlier questions about flows took too long", p.server.Awaited())
	}
	answers, silent = p.server.Flows(ctx, machine, q)
	if ctx.Err() != nil {
		return nil, nil, flowsHeld("this question about flows took too long", silent)
	}
	return answers, silent, nil
}

// flowsHeld says why there is no answer about flows, and what to do.
func flowsHeld(why string, silent []string) error {
	if len(silent) == 0 {
		return fmt.Errorf("%s: ask again in a few seconds", why)
	}
	return fmt.Errorf("%s, and %s", why, unanswered(silent))
}

// unanswered names machines that have not said what their flow tables have, and what to do.
func unanswered(machines []string) string {
	have := "has"
	if len(machines) > 1 {
		have = "have"
	}
	return fmt.Sprintf("%s %s not answered: ask again in a few seconds; if that does not help, see `fairlead status` and the agent's log there", model.List(machines, ", "), have)
}
