package plane

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

// TestMachinesThatDoNotAnswerAreNamed holds that a machine which does not say what its flow table has is named: where
// nobody else answers, beside the answers of others, and to whom waits for it.
func TestMachinesThatDoNotAnswerAreNamed(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	one, two := r.joined(p, "edge-1"), r.joined(p, "edge-2")
	poolOf(r, "edge-1", "edge-2")
	r.create(balanced("app"), slice("app", "10.1.0.1"))
	one.mute = true
	for _, a := range []*fakeAgent{one, two} {
		a.connect(p.AgentAddress().String())
		a.awaitBackends(web4, "10.1.0.1=100/100 ready")
	}
	eventually(t, "both have reported", func() error {
		list, err := p.Flows(t.Context(), "", model.FlowQuery{})
		if err != nil || !slices.Equal(list.Answered, []string{"edge-2"}) || !slices.Equal(list.Silent, []string{"edge-1"}) {
			return fmt.Errorf("%+v, %w", list, err)
		}
		return nil
	})
	if list, err := p.Flows(t.Context(), "edge-1", model.FlowQuery{}); err == nil || !strings.Contains(err.Error(), "edge-1 has not answered: ask again") {
		t.Errorf("of a machine that does not answer: %+v, %v", list, err)
	}
	request := explain.FlowRequest{Frontend: web4, Client: netip.MustParseAddrPort("198.51.100.7:4000")}
	e, err := p.ExplainFlow(t.Context(), request)
	if err != nil || e.Backend == nil || !slices.ContainsFunc(e.Notes, func(note string) bool { return strings.HasPrefix(note, "edge-1 did not answer in time") }) {
		t.Errorf("%+v, %v", e, err)
	}

	// Who gives up meanwhile is told who is waited for.
	var all sync.WaitGroup
	defer all.Wait()
	eventually(t, "edge-1 is waited for", func() error {
		all.Go(func() { _, _, _ = p.flows(t.Context(), "edge-1", model.FlowQuery{}) })
		hasty, cancel := context.WithCancel(t.Context())
		cancel()
		if answers, _, err := p.flows(hasty, "", model.FlowQuery{}); err == nil || !strings.Contains(err.Error(), "edge-1 has not answered") {
			return fmt.Errorf("%v, %w", answers, err)
		}
		return nil
	})
}

// TestQuestionsAboutFlowsAreFew holds that few wait for others, and that none which is given up looks like an answer.
func TestQuestionsAboutFlowsAreFew(t *testing.T) {
	p := newRig(t).plane("one").awaitReady()
	p.flowing.turn <- struct{}{} // one is asked
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range maxFlowQuestions {
		all.Go(func() {
			if answers, _, err := p.flows(ctx, "", model.FlowQuery{}); err == nil {
				t.Errorf("a question that is given up is answered: %v", answers)
			}
		})
	}
	eventually(t, "they wait", func() error {
		if n := len(p.flowing.places); n < maxFlowQuestions {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	if _, err := p.Flows(t.Context(), "", model.FlowQuery{}); err == nil || !strings.Contains(err.Error(), "ask again in a few seconds") {
		t.Errorf("one more: %v", err)
	}
	cancel()
	all.Wait()
	<-p.flowing.turn
	if _, err := p.Flows(t.Context(), "", model.FlowQuery{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
