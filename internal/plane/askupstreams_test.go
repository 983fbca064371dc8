package plane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/console"
	"fairlead.dev/internal/discovery"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// idleSource says nothing by itself.
type idleSource struct{}

func (idleSource) Run(ctx context.Context) { <-ctx.Done() }

// A change of an upstream is followed to the machines, and status and explanations name the upstream.
func TestChangesOfUpstreamsAreFollowed(t *testing.T) {
	r := newRig(t)
	r.world()
	sinks := make(chan cloud.Sink, 1)
	p := r.plane("one", func(c *Config) {
		c.upstreamSource = func(_ discovery.Origin, s cloud.Sink) (discovery.Source, error) {
			sinks <- s
			return idleSource{}, nil
		}
	}).awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	a.await("has the route", a.holdsHost("app.example"))
	up := &v1alpha1.Upstream{ObjectMeta: metav1.ObjectMeta{Name: "up01"}, Spec: v1alpha1.UpstreamSpec{Kubernetes: &v1alpha1.KubernetesUpstream{Secret: "up01"}}}
	r.create(up, httpRoute("cloud", "cloud.example", "up01-web"))
	t.Cleanup(func() {
		p.stop() // nobody writes what goes now
		_ = r.client.Delete(context.Background(), up)
		for _, o := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}} {
			_ = r.client.DeleteAllOf(context.Background(), o, client.InNamespace("default"), client.HasLabels{v1alpha1.LabelUpstream})
		}
	})
	sink := <-sinks
	web := func(n int) *model.UpstreamService {
		s := &model.UpstreamService{
			Key: model.UpstreamKey{Scope: "default", Name: "web"}, Object: "Service default/web", Seen: time.Now(),
			Ports:  []model.UpstreamPort{{Name: "http", Port: 80, Protocol: "TCP"}},
			Slices: []model.UpstreamSlice{{Name: "web-1", Ports: []model.UpstreamPort{{Name: "http", Port: 8080, Protocol: "TCP"}}}},
		}
		for i := range n {
			s.Slices[0].Endpoints = append(s.Slices[0].Endpoints, model.UpstreamEndpoint{Address: netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), Ready: true, Serving: true})
		}
		return s
	}
	sink.Contact(nil)
	sink.Replace([]*model.UpstreamService{web(1)})
	a.await("has the upstream's route", a.holdsHost("cloud.example"))

	last := func(check func(model.UpstreamStatus, model.Passage) error) func() error {
		return func() error {
			rows, err := p.Upstreams(t.Context(), "up01")
			if err != nil || len(rows) != 1 || len(rows[0].Changes) == 0 {
				return fmt.Errorf("%+v, %w", rows, err)
			}
			if err := check(rows[0], rows[0].Changes[0]); err != nil {
				return fmt.Errorf("%w: %+v", err, rows[0].Changes)
			}
			return nil
		}
	}
	a.with(func() { a.stuck = true })
	sink.Put(web(2))
	published := uint64(0)
	eventually(t, "the change is published", last(func(u model.UpstreamStatus, c model.Passage) error {
		if published = c.Revision; c.Service != "default/web" || published == 0 || c.Published.Before(c.Decided) || c.Decided.Before(c.Seen) {
			return errors.New("it is not published")
		}
		if u.Replicated != (model.UpstreamCounts{Services: 1, Endpoints: 2}) {
			return fmt.Errorf("%+v is in effect", u.Replicated)
		}
		return nil
	}))
	a.await("was sent the change", func() error {
		if a.point.Number < published {
			return fmt.Errorf("it has revision %d", a.point.Number)
		}
		return nil
	})
	if err := last(func(_ model.UpstreamStatus, c model.Passage) error {
		if !c.InForce.IsZero() {
			return errors.New("it is in force at a machine that applies nothing")
		}
		return nil
	})(); err != nil {
		t.Error(err)
	}
	a.with(func() { a.stuck = false })
	eventually(t, "the change is in force", last(func(_ model.UpstreamStatus, c model.Passage) error {
		if c.InForce.Before(c.Published) || c.InForce.IsZero() {
			return errors.New("it is not in force")
		}
		return nil
	}))

	// A change of a service that nothing routes to concerns no machine.
	idle := web(1)
	idle.Key.Name, idle.Object = "idle", "Service default/idle"
	sink.Put(idle)
	eventually(t, "the change is known to be unused", last(func(_ model.UpstreamStatus, c model.Passage) error {
		if c.Service != "default/idle" || !c.Unused {
			return errors.New("it is not")
		}
		return nil
	}))

	request, err := explain.NewRequest(explain.Options{URL: "http://cloud.example/"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Explain(t.Context(), request)
	if err != nil || len(e.Groups) != 1 || e.Groups[0].Upstream == nil {
		t.Fatalf("%+v, %v", e.Groups, err)
	}
	if d := e.Groups[0].Upstream; d.Upstream != "up01" || d.Object != "Service default/web" || d.Age <= 0 || d.Contact <= 0 || !d.Held.IsZero() {
		t.Errorf("the upstream is %+v", d)
	}

	eventually(t, "the upstream is counted", func() error {
		if n := p.Status(t.Context()).Upstreams; n != (model.UpstreamSummary{Total: 1, Current: 1}) {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	sink.Contact(&cloud.Error{Reason: v1alpha1.ReasonTimeout, Err: errors.New("no answer within 10s")})
	want := model.Problem{Severity: model.SeverityError, Subject: "Upstream up01", Reason: v1alpha1.ReasonTimeout, Message: "no answer within 10s"}
	eventually(t, "the upstream is a problem", func() error {
		s := p.Status(t.Context())
		for _, problem := range s.Problems {
			if problem == want && s.Upstreams == (model.UpstreamSummary{Total: 1}) {
				return nil
			}
		}
		return fmt.Errorf("%+v, %+v", s.Upstreams, s.Problems)
	})
	if _, err := p.Upstreams(t.Context(), "up02"); !errors.Is(err, console.ErrNone) || err.Error() != "there is no Upstream up02; did you mean up01?" {
		t.Errorf("of another name: %v", err)
	}
}
