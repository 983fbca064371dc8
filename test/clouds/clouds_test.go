package clouds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
)

// All that happens to clouds, one thing after the other, and no request fails.
func TestClouds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Minute)
	defer cancel()
	s := newSite(ctx, t)
	for _, stage := range []func(context.Context){
		s.arrives, s.moves, s.scales, s.changesCloud, s.survivesDeath, s.forgetsPod, s.restarts,
	} {
		stage(ctx)
	}
}

// The names of services here.
const (
	app1 = "up01-app"
	app2 = "up02-app"
)

func (s *site) app3() string { return "up03-" + s.cloud.balancers[0] }

// arrives: each cloud's services are Services here, with the endpoints that they have there.
func (s *site) arrives(ctx context.Context) {
	s.t.Helper()
	s.followAll(ctx)
	for _, name := range []string{"up01", "up02", "up03"} {
		s.isCurrent(ctx, name)
	}
	for _, k := range s.clouds {
		s.hasPods(ctx, k, 2)
	}
	for _, id := range s.cloud.balancers {
		s.hasEndpoints(ctx, "up03-"+id, s.members()...)
	}
	var service corev1.Service
	s.must(s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: app1}, &service))
	if service.Spec.ClusterIP != corev1.ClusterIPNone || len(service.Spec.Selector) > 0 || service.Labels[v1alpha1.LabelUpstream] != "up01" {
		s.t.Errorf("Service %s is %+v, labels %v", app1, service.Spec, service.Labels)
	}
}

// moves: weights turn requests from machines to pods.
func (s *site) moves(ctx context.Context) {
	s.t.Helper()
	s.weigh(ctx, map[string]int{s.app3(): 100, app1: 0})
	s.eventually(ctx, "the route is served", s.answers)
	l := s.begin(ctx)
	for _, pods := range []int{0, 50, 100} {
		s.weigh(ctx, map[string]int{s.app3(): 100 - pods, app1: pods})
		l.sees(ctx, fmt.Sprintf("%d %% of the requests go to pods", pods), map[string]float64{"vms": float64(100 - pods), "up01": float64(pods)})
	}
	l.stop("weights moved from machines to pods")
}

// scales: pods come and go.
func (s *site) scales(ctx context.Context) {
	s.t.Helper()
	k := s.clouds["up01"]
	l := s.begin(ctx)
	for _, pods := range []int{4, 2} {
		s.must(k.scale(ctx, int32(pods)))
		names := s.hasPods(ctx, k, pods)
		s.eventually(ctx, fmt.Sprintf("%d pods answer", pods), func(context.Context) error {
			counts := l.answers()
			for _, name := range names {
				if counts[name] == 0 {
					return fmt.Errorf("%s does not answer: %v", name, counts)
				}
			}
			if len(counts) != pods {
				return fmt.Errorf("%v answer", counts)
			}
			return nil
		})
	}
	s.eventually(ctx, "the other pods have ended", func(ctx context.Context) error {
		list, err := k.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	l.stop("pods came and went")
}

// changesCloud: a member goes from a load balancer, and a whole load balancer.
func (s *site) changesCloud(ctx context.Context) {
	s.t.Helper()
	s.weigh(ctx, map[string]int{s.app3(): 100})
	l := s.begin(ctx)
	l.sees(ctx, "machines answer", map[string]float64{"vms": 100})
	gone := s.members()[2]
	s.must(s.cloud.removeMember(ctx, s.cloud.balancers[0], gone))
	s.hasEndpoints(ctx, s.app3(), s.members()[:2]...)
	s.eventually(ctx, "the member has no more requests", func(context.Context) error {
		if counts := l.answers(); counts["vms-c"] > 0 || len(counts) != 2 {
			return fmt.Errorf("%v answer", counts)
		}
		return nil
	})
	last := s.cloud.balancers[balancers-1]
	s.must(s.cloud.remove(ctx, last))
	s.eventually(ctx, "the load balancer's Service is gone", func(ctx context.Context) error {
		var service corev1.Service
		switch err := s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "up03-" + last}, &service); {
		case err == nil:
			return errors.New("it is there")
		case client.IgnoreNotFound(err) != nil:
			return err
		}
		return s.noSlice(ctx, "up03-"+last)
	})
	s.isCurrent(ctx, "up03")
	l.stop("a member and a load balancer were deleted")
}

// survivesDeath: the API of up02 dies. Its pods go on to serve, and so do the others; when it is back, nothing is lost.
func (s *site) survivesDeath(ctx context.Context) {
	s.t.Helper()
	k := s.clouds["up02"]
	s.weigh(ctx, map[string]int{s.app3(): 1, app1: 1, app2: 1})
	shares := map[string]float64{"vms": 33, "up01": 33, "up02": 33}
	l := s.begin(ctx)
	l.sees(ctx, "all clouds answer", shares)
	before, endpoints := s.versions(ctx, "up02"), s.endpoints(ctx, app2)
	k.APIs[0].Process.Kill9()
	k.Storage.Kill9()
	s.isAway(ctx, "up02", v1alpha1.ReasonStale)
	l.forget()
	l.sees(ctx, "all clouds answer while an API is dead", shares)
	s.same("while the API is dead", before, s.versions(ctx, "up02"))
	// The others go on: a change of theirs arrives.
	s.must(s.clouds["up01"].scale(ctx, 3))
	s.hasPods(ctx, s.clouds["up01"], 3)
	s.isCurrent(ctx, "up01")
	s.isCurrent(ctx, "up03")

	// The next plane knows up02 only by what is stored, and the edge must hear of it from that plane.
	s.weigh(ctx, map[string]int{s.app3(): 1, app1: 1})
	l.sees(ctx, "two clouds answer", map[string]float64{"vms": 50, "up01": 50})
	s.killPlane(ctx, "while an API is dead")
	s.isAway(ctx, "up02", v1alpha1.ReasonSyncing)
	s.weigh(ctx, map[string]int{s.app3(): 1, app1: 1, app2: 1})
	l.sees(ctx, "all clouds answer after the plane's restart", shares)
	s.same("while the API is dead, after the plane's restart", before, s.versions(ctx, "up02"))

	s.must(k.StartStorage(ctx), k.APIs[0].Start(ctx), k.APIs[0].AwaitReady(ctx))
	s.isCurrent(ctx, "up02")
	if now := s.endpoints(ctx, app2); !slices.Equal(now, endpoints) {
		s.t.Errorf("up02 is back with endpoints %v, had %v", now, endpoints)
	}
	l.forget()
	l.sees(ctx, "all clouds answer when the API is back", shares)
	l.stop("the API of a cluster died and came back, and the plane was killed meanwhile")
}

// forgetsPod: a pod that is deleted while the plane cannot reach the API goes from here when it can.
func (s *site) forgetsPod(ctx context.Context) {
	s.t.Helper()
	k := s.clouds["up02"]
	s.weigh(ctx, map[string]int{s.app3(): 50, app1: 50})
	l := s.begin(ctx)
	l.sees(ctx, "two clouds answer", map[string]float64{"vms": 50, "up01": 50})
	before := s.endpoints(ctx, app2)
	s.cut(ctx, k, "-A")
	s.isAway(ctx, "up02", v1alpha1.ReasonStale)
	pods, err := k.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	s.must(err)
	victim := pods.Items[0]
	now := int64(0)
	s.must(k.api.CoreV1().Pods(namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	var want []string
	s.eventually(ctx, "the cluster has another pod", func(ctx context.Context) (err error) {
		if want, err = k.ready(ctx); err == nil && (len(want) != 2 || slices.Contains(want, victim.Status.PodIP)) {
			err = fmt.Errorf("ready are %v", want)
		}
		return err
	})
	if now := s.endpoints(ctx, app2); !slices.Equal(now, before) {
		s.t.Errorf("while up02 is away it has endpoints %v, had %v", now, before)
	}
	s.cut(ctx, k, "-D")
	s.hasEndpoints(ctx, app2, want...)
	s.isCurrent(ctx, "up02")
	s.weigh(ctx, map[string]int{app2: 100})
	l.sees(ctx, "the pods of up02 answer", map[string]float64{"up02": 100})
	l.stop("a pod was deleted while its API was away")
}

// restarts: a plane that is killed and started writes nothing.
func (s *site) restarts(ctx context.Context) {
	s.t.Helper()
	s.weigh(ctx, map[string]int{s.app3(): 1, app1: 1, app2: 1})
	l := s.begin(ctx)
	shares := map[string]float64{"vms": 33, "up01": 33, "up02": 33}
	l.sees(ctx, "all clouds answer", shares)
	before := map[string]map[string]string{}
	names := []string{"up01", "up02", "up03"}
	for _, name := range names {
		before[name] = s.versions(ctx, name)
	}
	s.killPlane(ctx, "in quiet")
	for _, name := range names {
		s.isCurrent(ctx, name)
	}
	l.forget()
	l.sees(ctx, "all clouds answer after a restart", shares)
	for _, name := range names {
		s.same(name+" after a restart", before[name], s.versions(ctx, name))
	}
	l.stop("the plane was killed and started")
}

// answers is nil if the edge answers a request.
func (s *site) answers(ctx context.Context) error {
	c := s.config()
	c.Rate, c.Requests, c.Concurrency = 0, 1, 1
	return s.one(ctx, c)
}

// killPlane kills the plane and starts it again.
func (s *site) killPlane(ctx context.Context, when string) {
	s.t.Helper()
	s.plane.Process.Kill9()
	began := time.Now()
	s.must(s.plane.Start(ctx))
	s.t.Logf("the plane is ready %s after it was killed %s", time.Since(began).Round(time.Millisecond), when)
}

// cut has the plane and a cluster's API refuse each other's packets ("-A"), or not any more ("-D").
func (s *site) cut(ctx context.Context, k *kubeCloud, how string) {
	s.t.Helper()
	out, err := s.plane.Machine.Command(ctx, "iptables", how, "OUTPUT", "-p", "tcp", "-d", k.Control.Addr4().String(), "-j", "REJECT", "--reject-with", "tcp-reset").CombinedOutput()
	if err != nil {
		s.t.Fatalf("iptables: %v: %s", err, out)
	}
}

// conditions are those that the plane's console tells now. The stored ones follow.
func (s *site) conditions(ctx context.Context, name string) ([]metav1.Condition, error) {
	var u v1alpha1.Upstream
	if err := s.api.Get(ctx, client.ObjectKey{Name: name}, &u); err != nil {
		return nil, err
	}
	told, err := s.plane.Upstreams(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(told) != 1 {
		return nil, fmt.Errorf("the console tells of %d upstreams", len(told))
	}
	for _, c := range told[0].Conditions {
		stored := meta.FindStatusCondition(u.Status.Conditions, c.Type)
		if stored == nil || string(stored.Status) != c.Status || stored.Reason != c.Reason {
			return nil, fmt.Errorf("the console tells %+v, stored is %+v", c, stored)
		}
	}
	return u.Status.Conditions, nil
}

func (s *site) isCurrent(ctx context.Context, name string) {
	s.t.Helper()
	s.eventually(ctx, name+" is current", func(ctx context.Context) error {
		all, err := s.conditions(ctx, name)
		for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReachable, v1alpha1.ConditionCurrent} {
			if err == nil && !meta.IsStatusConditionTrue(all, kind) {
				err = fmt.Errorf("%s: %+v", kind, meta.FindStatusCondition(all, kind))
			}
		}
		if told, asked := s.plane.Upstreams(ctx, name); err == nil && asked == nil && told[0].WritesQueued > 0 {
			err = fmt.Errorf("%d objects are not stored yet", told[0].WritesQueued)
		}
		return err
	})
}

// isAway waits until an upstream is not reachable, and for a reason not current.
func (s *site) isAway(ctx context.Context, name, reason string) {
	s.t.Helper()
	s.eventually(ctx, name+" is away", func(ctx context.Context) error {
		all, err := s.conditions(ctx, name)
		if err != nil {
			return err
		}
		reachable, current := meta.FindStatusCondition(all, v1alpha1.ConditionReachable), meta.FindStatusCondition(all, v1alpha1.ConditionCurrent)
		if reachable == nil || reachable.Status != metav1.ConditionFalse || current == nil || current.Status != metav1.ConditionFalse || current.Reason != reason {
			return fmt.Errorf("%+v, %+v", reachable, current)
		}
		return nil
	})
}

func (s *site) members() []string {
	var all []string
	for _, a := range s.vms.Addrs4() {
		all = append(all, a.String())
	}
	return all
}

// ready are the addresses of the Service's pods that are ready, by the word of the cluster.
func (k *kubeCloud) ready(ctx context.Context) ([]string, error) {
	list, err := k.api.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=app"})
	if err != nil {
		return nil, err
	}
	return addresses(list.Items), nil
}

// addresses are those of the ready endpoints, sorted.
func addresses(of []discoveryv1.EndpointSlice) []string {
	var all []string
	for _, s := range of {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				all = append(all, e.Addresses...)
			}
		}
	}
	slices.Sort(all)
	return all
}

// hasPods waits until a cluster has so many ready pods, and the Service here their addresses. It returns their names.
func (s *site) hasPods(ctx context.Context, k *kubeCloud, n int) []string {
	s.t.Helper()
	var want []string
	s.eventually(ctx, fmt.Sprintf("%s has %d ready pods", k.name, n), func(ctx context.Context) (err error) {
		if want, err = k.ready(ctx); err == nil && len(want) != n {
			err = fmt.Errorf("ready are %v", want)
		}
		return err
	})
	s.hasEndpoints(ctx, k.name+"-app", want...)
	pods, err := k.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	s.must(err)
	var names []string
	for _, p := range pods.Items {
		if slices.Contains(want, p.Status.PodIP) {
			names = append(names, p.Name)
		}
	}
	return names
}

func (s *site) slicesOf(ctx context.Context, selector client.MatchingLabels) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := s.api.List(ctx, &list, client.InNamespace(namespace), selector)
	return list.Items, err
}

func (s *site) noSlice(ctx context.Context, service string) error {
	left, err := s.slicesOf(ctx, client.MatchingLabels{discoveryv1.LabelServiceName: service})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d EndpointSlices are left", len(left))
	}
	return err
}

// endpoints are the addresses of the ready endpoints that a Service has here.
func (s *site) endpoints(ctx context.Context, service string) []string {
	s.t.Helper()
	all, err := s.slicesOf(ctx, client.MatchingLabels{discoveryv1.LabelServiceName: service})
	s.must(err)
	return addresses(all)
}

// hasEndpoints waits until a Service has exactly these ready endpoints here.
func (s *site) hasEndpoints(ctx context.Context, service string, want ...string) {
	s.t.Helper()
	want = slices.Sorted(slices.Values(want))
	s.eventually(ctx, fmt.Sprintf("%s has %d endpoints", service, len(want)), func(ctx context.Context) error {
		var o corev1.Service
		all, err := s.slicesOf(ctx, client.MatchingLabels{discoveryv1.LabelServiceName: service})
		if err := errors.Join(err, s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: service}, &o)); err != nil {
			return err
		}
		if got := addresses(all); !slices.Equal(got, want) {
			return fmt.Errorf("it has %v, want %v", got, want)
		}
		return nil
	})
}

// versions are the resource versions of all objects of an upstream.
func (s *site) versions(ctx context.Context, upstream string) map[string]string {
	s.t.Helper()
	of := client.MatchingLabels{v1alpha1.LabelUpstream: upstream}
	all := map[string]string{}
	var services corev1.ServiceList
	s.must(s.api.List(ctx, &services, of))
	for _, o := range services.Items {
		all["Service "+o.Name] = o.ResourceVersion
	}
	endpoints, err := s.slicesOf(ctx, of)
	s.must(err)
	for _, o := range endpoints {
		all["EndpointSlice "+o.Name] = o.ResourceVersion
	}
	if len(all) == 0 {
		s.t.Fatalf("%s has no objects", upstream)
	}
	return all
}

func (s *site) same(when string, before, now map[string]string) {
	s.t.Helper()
	var changed []string
	for name, version := range before {
		if now[name] != version {
			changed = append(changed, name)
		}
	}
	if slices.Sort(changed); len(changed) > 0 || len(now) != len(before) {
		s.t.Errorf("%s: %d objects were %d; rewritten or gone are %s", when, len(now), len(before), strings.Join(changed, ", "))
	}
}
