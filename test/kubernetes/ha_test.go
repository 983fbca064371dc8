package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/cluster"
)

// survivesOneOfThree kills the members of etcd, the APIs and three planes one by one under load:
// no request fails, and changes of routes go on.
func (s *site) survivesOneOfThree() {
	s.t.Helper()
	s.runHelm("upgrade", "fairlead", chart, "--namespace", "fairlead-system", "--reuse-values", "--set", "plane.replicas=3", "--wait", "--timeout", "10m")
	s.awaitPods("fairlead-system", "plane", 3)
	s.apply(`
apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: ha, namespace: team01}
spec:
  virtualhost: {fqdn: ` + turning + `}
  routes: [{match: /, services: [{name: ` + between[0] + `, port: 80}]}]
`)
	s.change("nothing is dead")
	l := s.begin(false, turning)
	for _, m := range s.cluster.Etcd.Members {
		m.Process.Kill9()
		s.change("etcd of " + m.Machine.Name() + " is dead")
		if err := errors.Join(m.Start(s.ctx), m.AwaitHealthy(s.ctx)); err != nil {
			s.t.Fatal(err)
		}
		s.change("it is back")
	}
	for _, a := range s.cluster.APIs {
		a.Process.Kill9()
		s.change("the API of " + a.Machine.Name() + " is dead")
		if err := errors.Join(a.Start(s.ctx), a.AwaitReady(s.ctx)); err != nil {
			s.t.Fatal(err)
		}
		s.change("it is back")
	}
	for range 3 {
		s.killLeader()
		s.change("the leading plane is dead")
		s.awaitPods("fairlead-system", "plane", 3)
		s.change("it is back")
	}
	for range 3 {
		leader := s.leads()
		s.kubectl("-n", "fairlead-system", "delete", "pod", leader, "--grace-period=0", "--force")
		s.change("the pod of the leading plane is deleted")
		s.awaitPods("fairlead-system", "plane", 3)
	}
	if asked, failed := l.stop(); asked < 100 || len(failed) > 0 {
		s.t.Errorf("while one of three was killed, of %d requests %d failed: %v", asked, len(failed), failed[:min(len(failed), 20)])
	} else {
		s.t.Logf("each of three was killed: %d requests, none failed", asked)
	}
}

// turning is the host that change sends to the one or the other.
const turning = "ha.example.com"

var between = [2]string{"up01-team01-app", "up02-team01-d1b6f7a2-4c52-4f0e-9a53-2f6c0b7f9e11"}

// change sends the route to its other backend through whichever API takes it, and waits until both
// nodes do so.
func (s *site) change(when string) {
	s.t.Helper()
	began := time.Now()
	s.turn++
	want := between[s.turn%2]
	patch := fmt.Sprintf(`{"spec": {"routes": [{"match": "/", "services": [{"name": %q, "port": 80}]}]}}`, want)
	var by *cluster.API
	s.eventually("an API takes the route when "+when, func() error {
		var problems error
		for _, a := range s.cluster.APIs {
			_, err := s.tryKubectl("--server", a.Server(), "--request-timeout", "5s", "-n", "team01", "patch", "ingressroute", "ha", "--type", "merge", "-p", patch)
			if err == nil {
				by = a
				return nil
			}
			problems = errors.Join(problems, err)
		}
		return problems
	})
	taken := time.Now()
	client := s.client.HTTPClient()
	for _, node := range s.cluster.Nodes {
		s.eventually("the route has turned on "+node.Name()+" when "+when, func() error {
			pod, err := s.get(client, node.Addr4().String(), turning, "/")
			if err == nil && pod != want {
				err = fmt.Errorf("%s answers", pod)
			}
			return err
		})
	}
	s.t.Logf("%s: a change was taken by %s after %s, and served by both nodes %s later", when, by.Machine.Name(),
		taken.Sub(began).Round(time.Millisecond), time.Since(taken).Round(time.Millisecond))
}

// leads is the pod of the plane that leads, at last.
func (s *site) leads() (name string) {
	s.t.Helper()
	s.eventually("a plane leads", func() (err error) {
		name, _, err = s.leader()
		return err
	})
	return name
}

// killLeader kills the process of the leading plane, in its container.
func (s *site) killLeader() {
	s.t.Helper()
	var pod struct {
		Spec   struct{ NodeName string }
		Status struct {
			ContainerStatuses []struct{ ContainerID string }
		}
	}
	if err := json.Unmarshal([]byte(s.kubectl("-n", "fairlead-system", "get", "pod", s.leads(), "-o", "json")), &pod); err != nil {
		s.t.Fatal(err)
	}
	node := s.cluster.Nodes[slices.IndexFunc(s.cluster.Nodes, func(m *lab.Machine) bool { return m.Name() == pod.Spec.NodeName })]
	if err := s.cluster.KillContainer(s.ctx, node, pod.Status.ContainerStatuses[0].ContainerID); err != nil {
		s.t.Fatal(err)
	}
}
