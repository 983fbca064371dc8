package discovery

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/cloud"
)

// script is an API that gives batches, then nothing.
type script chan snapshot.Batch

func (s script) Next(ctx context.Context) (snapshot.Batch, error) {
	select {
	case b := <-s:
		return b, nil
	case <-ctx.Done():
		return snapshot.Batch{}, ctx.Err()
	}
}

// deaf is a writer that writes nothing.
type deaf struct{}

func (deaf) Offer(derive.Object) {}

// told is a source that says what a test says.
type told struct{}

func (told) Run(ctx context.Context) { <-ctx.Done() }

func object(o snapshot.Object, k snapshot.Kind) snapshot.Change {
	return snapshot.Change{Key: snapshot.Key{Kind: k, Name: snapshot.Name{Namespace: o.GetNamespace(), Name: o.GetName()}}, Object: o}
}

func listed(endpoints int) *model.UpstreamService {
	s := &model.UpstreamService{
		Key: keyOf("app"), Object: "Service team01/app", Seen: time.Now(), Ports: []model.UpstreamPort{{Name: "http", Port: 80, Protocol: "TCP"}},
		Slices: []model.UpstreamSlice{{Name: "app-1", Ports: []model.UpstreamPort{{Name: "http", Port: 8080, Protocol: "TCP"}}}},
	}
	for i := range endpoints {
		s.Slices[0].Endpoints = append(s.Slices[0].Endpoints, model.UpstreamEndpoint{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), Ready: true, Serving: true})
	}
	return s
}

// What is known of an upstream is what its source has said, and a change is followed to the machines.
func TestViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, sinks, origins := make(script), map[string]cloud.Sink{}, map[string]Origin{}
		d := New(Config{API: api, Writer: deaf{}, Log: slog.New(slog.DiscardHandler), Open: func(o Origin, s cloud.Sink) (Source, error) {
			sinks[o.Upstream.Name], origins[o.Upstream.Name] = s, o
			if o.Upstream.Name == "up02" {
				return nil, &cloud.Error{Reason: v1alpha1.ReasonSecretMissing, Err: errors.New("secret fairlead-system/up02 does not exist")}
			}
			return told{}, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go d.Run(ctx)
		follow := func(name string) snapshot.Change {
			return object(&v1alpha1.Upstream{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.UpstreamSpec{Kubernetes: &v1alpha1.KubernetesUpstream{Secret: name}},
			}, snapshot.KindUpstream)
		}
		api <- snapshot.Batch{Synced: true, Changes: []snapshot.Change{
			follow("up01"), follow("up02"),
			object(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team01"}}, snapshot.KindNamespace),
			object(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team01", Name: "gone-app", Labels: map[string]string{v1alpha1.LabelUpstream: "gone"}}}, snapshot.KindService),
		}}
		if b, err := d.Next(ctx); err != nil || !b.Synced || b.Number != 0 {
			t.Fatalf("the first batch is %+v, %v", b, err)
		}
		d.Lead(ctx, true)
		sinks["up01"].Contact(nil)
		sinks["up01"].Replace([]*model.UpstreamService{listed(4), {Key: keyOf("db"), Object: "Service team01/db"}})
		synctest.Wait()
		if b, err := d.Next(ctx); err != nil || len(b.Changes) != 2 || b.Number != 0 {
			t.Fatalf("after the list: %+v, %v", b, err)
		}
		origins["up01"].Counters.Requests[2].Add(3)
		time.Sleep(5 * time.Second)
		sinks["up01"].Put(listed(3))
		b, err := d.Next(ctx)
		if err != nil || b.Number != 1 {
			t.Fatalf("after a change: %+v, %v", b, err)
		}
		time.Sleep(time.Second)
		d.Published(b.Number, 7, time.Now())
		time.Sleep(time.Second)
		d.InForce(b.Number, time.Now())

		views, err := d.Views(ctx, 10)
		if err != nil || len(views) != 3 || views[0].Name != "gone" || views[1].Name != "up01" || views[2].Name != "up02" {
			t.Fatalf("%+v, %v", views, err)
		}
		if left := views[0].Left; views[0].Status != nil || left.Services != 1 || left.Used != nil {
			t.Errorf("of the deleted one: %+v", left)
		}
		m := views[1].State
		if m.Seen.Services != 2 || m.Replicated.Services != 1 || m.Replicated.Endpoints != 3 || m.Refused != 1 || m.RefusedBy[model.RefusedNoPorts] != 1 || views[1].Unstored != 2 || views[1].Counters.Requests[2].Load() != 3 {
			t.Errorf("of up01: %+v", views[1])
		}
		if c := views[2].Status.Conditions[0]; c.Reason != v1alpha1.ReasonSecretMissing {
			t.Errorf("of up02: %+v", c)
		}
		found, err := d.Services(ctx, []snapshot.Name{{Namespace: "team01", Name: "up01-app"}, {Namespace: "team01", Name: "gone-app"}})
		if s := found[snapshot.Name{Namespace: "team01", Name: "up01-app"}]; err != nil || len(found) != 1 || s.Upstream != "up01" || s.From.Object != "Service team01/app" || s.Contact.IsZero() {
			t.Errorf("the Services are %+v, %v", found, err)
		}
		p := d.Passages("up01", 10)
		if len(p) != 1 || p[0].Published.Sub(p[0].Decided) != time.Second || p[0].InForce.Sub(p[0].Seen) != 2*time.Second {
			t.Errorf("the passages are %+v", p)
		}

		sinks["up01"].Contact(&cloud.Error{Reason: v1alpha1.ReasonTimeout, Err: errors.New("no answer")})
		failed := time.Now()
		time.Sleep(2 * time.Second) // the metrics follow each second
		views, _ = d.Views(ctx, 0)
		if c := views[1].Status.Conditions[1]; c.Status != metav1.ConditionFalse || !c.LastTransitionTime.Time.Equal(failed) {
			t.Errorf("it is reachable: %+v, want no since %s", c, failed)
		}
		if n := testutil.CollectAndCount(d.meter.known, "fairlead_discovery_upstreams", "fairlead_discovery_refused", "fairlead_discovery_requests_total"); n != 5+1+2*model.StatusClasses {
			t.Errorf("%d metrics", n)
		}
		if n := testutil.ToFloat64(d.meter.changes.WithLabelValues("up01")); n != 1 {
			t.Errorf("%v changes are counted", n)
		}
		cancel()
		synctest.Wait()
	})
}
