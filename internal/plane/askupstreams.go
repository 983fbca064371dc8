package plane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/console"
	"fairlead.dev/internal/discovery"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/near"
	"fairlead.dev/internal/snapshot"
)

const (
	// maxRefusals is how many refusals of each upstream consoles are told.
	maxRefusals = 1000
	// maxPassages is how many of the last changes of an upstream consoles are told.
	maxPassages = 100
)

// Upstreams tells about all upstreams, by name, or about one and its last changes. The error is a console.None where
// there is no upstream of the name.
func (p *Plane) Upstreams(ctx context.Context, name string) ([]model.UpstreamStatus, error) {
	if !p.runs() {
		return nil, errNotRunning
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	views, err := p.discovery.Views(ctx, maxRefusals)
	if err != nil {
		return nil, fmt.Errorf("ask about upstreams: %w", err)
	}
	now := p.config.Now()
	rows, names := []model.UpstreamStatus{}, []string{}
	for _, v := range views {
		names = append(names, v.Name)
		if name == "" {
			rows = append(rows, upstreamStatus(v, now))
		} else if v.Name == name {
			row := upstreamStatus(v, now)
			row.Changes = passagesOf(p.discovery.Passages(name, maxPassages))
			return []model.UpstreamStatus{row}, nil
		}
	}
	if name != "" {
		return nil, console.None("there is no Upstream " + name + near.DidYouMean(name, names))
	}
	return rows, nil
}

// upstreamStatus is what consoles tell of an upstream.
func upstreamStatus(v discovery.View, now time.Time) model.UpstreamStatus {
	s := model.UpstreamStatus{Name: v.Name, Conditions: []model.UpstreamCondition{}, Refusals: []model.UpstreamRefusal{}, WritesQueued: v.Unstored}
	if v.Status == nil {
		s.Deleted, s.Replicated = true, model.UpstreamCounts(v.Left.Counts)
		if v.Left.Used != nil {
			s.Used = []string{}
		}
		for _, n := range v.Left.Used {
			s.Used = append(s.Used, n.Namespace+"/"+n.Name)
		}
		return s
	}
	m := v.State
	s.Type, s.Seen, s.Replicated, s.Held = v.Status.Type, model.UpstreamCounts(m.Seen), model.UpstreamCounts(m.Replicated), model.UpstreamCounts(m.Held)
	s.Refused, s.LastContact, s.LastSweep = m.Refused, m.LastContact, m.LastSweep
	s.Refusals = append(s.Refusals, m.Refusals...)
	if !m.LastContact.IsZero() {
		s.Lag = max(now.Sub(m.LastContact), 0)
	}
	for _, c := range v.Status.Conditions {
		s.Conditions = append(s.Conditions, model.UpstreamCondition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time})
	}
	if c := v.Counters; c != nil {
		s.Requests = model.UpstreamRequests{
			AnswerTime: time.Duration(c.Nanoseconds.Load()), Bytes: c.Bytes.Load(), Throttled: c.Throttled.Load(), Answers: map[string]uint64{},
		}
		for class := range c.Requests {
			if n := c.Requests[class].Load(); n > 0 {
				s.Requests.Answers[model.StatusClass(class).String()] = n
			}
		}
	}
	return s
}

func passagesOf(list []discovery.Passage) []model.Passage {
	var out []model.Passage
	for _, p := range list {
		out = append(out, model.Passage{
			Upstream: p.Upstream, Service: p.Service.String(), Seen: p.Seen, Decided: p.Decided, Published: p.Published,
			Revision: p.Revision, Unused: !p.Published.IsZero() && p.Revision == 0, InForce: p.InForce,
		})
	}
	return out
}

// upstreamSummary counts the upstreams, and says which of them are not as they should be.
func (l *loop) upstreamSummary() (n model.UpstreamSummary, problems []model.Problem) {
	for name := range l.plane.upstreams.all() {
		s := l.plane.upstreams.status(name)
		if s == nil {
			continue
		}
		n.Total++
		problem, wrong := upstreamProblem(name, s)
		if wrong {
			problems = append(problems, problem)
		} else {
			n.Current++
		}
	}
	return n, problems
}

// upstreamProblem is the first condition of an upstream that is false: those after it follow from it.
func upstreamProblem(name string, s *v1alpha1.UpstreamStatus) (model.Problem, bool) {
	for _, c := range s.Conditions {
		if c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonNotTried {
			continue
		}
		severity := model.SeverityError
		if c.Type == v1alpha1.ConditionCurrent || c.Type == v1alpha1.ConditionStored {
			severity = model.SeverityWarning // traffic goes on as before
		}
		return model.Problem{
			Severity: severity, Subject: model.Object{Kind: string(snapshot.KindUpstream), Name: name}.String(), Reason: c.Reason, Message: c.Message,
		}, true
	}
	return model.Problem{}, false
}
