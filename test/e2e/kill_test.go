package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
)

// startPlane starts the plane again and waits until it has everybody back.
func (s *site) startPlane(t *testing.T) {
	t.Helper()
	if err := s.plane.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.plane.AwaitConnected(t.Context(), s.Lab.Machines(lab.RoleEdge)...); err != nil {
		t.Fatal(err)
	}
}

// killEdge kills an edge's agent and Envoy and returns when both are gone.
func (s *site) killEdge(t *testing.T, edge string) {
	t.Helper()
	a := s.agents[edge]
	envoy, err := a.Envoy()
	if err != nil {
		t.Fatal(err)
	}
	a.Process.Kill9()
	s.killEnvoy(t, envoy)
}

func (s *site) killEnvoy(t *testing.T, envoy lab.Resident) {
	t.Helper()
	if err := envoy.Kill9(); err != nil {
		t.Fatal(err)
	}
	s.await(t, "Envoy to be gone", func(context.Context) error {
		if envoy.Pid.Alive() {
			return fmt.Errorf("process %d is alive", envoy.Pid.ID)
		}
		return nil
	})
}

// envoy is the one Envoy of an edge.
func (s *site) envoy(t *testing.T, edge string) lab.Resident {
	t.Helper()
	var found lab.Resident
	s.await(t, "Envoy of "+edge, func(context.Context) (err error) {
		found, err = s.agents[edge].Envoy()
		return err
	})
	return found
}

// reroute changes where a host's requests go, and waits until both edges follow: what
// was killed works again.
func (s *site) reroute(t *testing.T, namespace string) {
	t.Helper()
	for _, b := range []string{"os1-b", "os1-a"} {
		s.apply(t, service(namespace, b, s.backends[b]), httpRoute(namespace, "reroute", namespace+".example.com", to(b)))
		s.awaitAnswer(t, request{host: namespace + ".example.com"}, 200, b)
	}
	s.awaitConditions(t, ref("HTTPRoute "+namespace+"/reroute"), programmed)
}

// TestKillPlane kills the plane. Nobody who sends requests notices, people are told,
// and with the plane everything is back.
func TestKillPlane(t *testing.T) {
	s := shared(t)
	s.namespace(t, "killplane")
	before, err := s.plane.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := s.startTraffic(t, newsHost)
	s.plane.Process.Kill9()
	f.more(t, 200)
	status, out, errs := s.run(t, s.plane.Machine, "status")
	const says = "fairlead: no plane answers: ask the console at http://127.0.0.1:7080: …connection refused: start it, or give its console with --plane-console\n"
	if status != 1 || out != "" || !matches(says, errs) {
		t.Errorf("status without a plane ended with %d: %s%s, want %s", status, out, errs, says)
	}
	for edge, a := range s.agents {
		if err := s.Get(t.Context(), a.Machine, "http://127.0.0.1:7081/readyz"); err != nil {
			t.Errorf("%s without a plane: %v", edge, err)
		}
	}
	killed := s.Now()
	s.startPlane(t)
	t.Logf("plane and edges were back %s after its start", s.Now().Sub(killed))
	s.reroute(t, "killplane")
	after, err := s.plane.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.Plane.Epoch <= before.Plane.Epoch || !after.Plane.Leading {
		t.Errorf("the plane is %+v, before it was %+v: want it leading with a larger epoch", after.Plane, before.Plane)
	}
	s.awaitNoProblem(t)
	f.none(t)
}

// TestKillAgent kills an agent. Its Envoy serves on, the plane says that the machine is
// lost, and the next agent takes the same Envoy over.
func TestKillAgent(t *testing.T) {
	s := shared(t)
	s.namespace(t, "killagent")
	envoy := s.envoy(t, edge1.Name)
	f := s.startTraffic(t, newsHost)
	s.agents[edge1.Name].Process.Kill9()
	s.awaitProblem(t, v1.Problem{
		Severity: v1.SeverityError, Subject: "Machine edge-1", Reason: "Lost", Message: "no report for 5s, the last at …Z",
	})
	s.awaitConditions(t, "Machine edge-1", condition{"Ready", "False", "Lost", "no report for 5s, the last at …Z"})
	s.awaitConditions(t, "HTTPRoute news-team/news",
		condition{"fairlead.dev/Programmed", "True", "Programmed", "every machine concerned runs it; lost: edge-1"})
	f.more(t, 100)
	if err := s.agents[edge1.Name].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.agents[edge1.Name].AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := s.envoy(t, edge1.Name); now.Pid != envoy.Pid {
		t.Errorf("Envoy is process %d, want process %d taken over", now.Pid.ID, envoy.Pid.ID)
	}
	s.reroute(t, "killagent")
	s.awaitConditions(t, "HTTPRoute news-team/news", programmed)
	s.awaitNoProblem(t)
	f.none(t)
}

// TestKillEnvoy kills an Envoy. What it lost is counted; the other edge loses nothing.
func TestKillEnvoy(t *testing.T) {
	s := shared(t)
	s.namespace(t, "killenvoy")
	envoy := s.envoy(t, edge1.Name)
	f := s.startTraffic(t, newsHost)
	killed := s.Now()
	s.killEnvoy(t, envoy)
	s.awaitAnswerOf(t, edge1.Name, request{host: newsHost}, 200)
	if now := s.envoy(t, edge1.Name); now.Pid == envoy.Pid {
		t.Errorf("Envoy is process %d still", now.Pid.ID)
	}
	s.await(t, "the status to count the start", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, m := range status.Machines {
			if m.Name == edge1.Name && (m.Proxy.State != "ready" || m.Proxy.Starts < 1) {
				return fmt.Errorf("the proxy is %+v", m.Proxy)
			}
		}
		return nil
	})
	s.reroute(t, "killenvoy")
	s.awaitNoProblem(t)
	f.more(t, 50)
	reports := f.stop()
	for edge, r := range reports {
		t.Logf("%s: %s", edge, r)
	}
	if r := reports[edge2.Name]; r.Failed > 0 {
		t.Errorf("edge-2 lost %d requests, and nobody touched it: %s", r.Failed, r.Why())
	}
	back, ok := reports[edge1.Name].Back(killed)
	if !ok {
		t.Error("edge-1 did not come back")
	}
	t.Logf("edge-1 lost %d requests and was back after %s", reports[edge1.Name].Failed, back)
}

// TestKillEdgeWithoutPlane kills the plane, then an agent together with its Envoy. The
// next agent serves what was remembered.
func TestKillEdgeWithoutPlane(t *testing.T) {
	s := shared(t)
	s.namespace(t, "killedge")
	s.reroute(t, "killedge")
	f := s.startTraffic(t, newsHost, edge2.Name)
	s.plane.Process.Kill9()
	s.killEdge(t, edge1.Name)
	if _, err := s.ask(t.Context(), edge1.Name, request{host: newsHost}); err == nil {
		t.Error("edge-1 answers without an Envoy")
	}
	if err := s.agents[edge1.Name].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.agents[edge1.Name].AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{newsHost, "news.yahoo.co.jp", "team01-app.example.com"} {
		s.awaitAnswerOf(t, edge1.Name, request{host: host}, 200)
	}
	s.awaitAnswerOf(t, edge1.Name, request{host: "killedge.example.com"}, 200, "os1-a")
	if s.plane.Answers(t.Context()) == nil {
		t.Error("there was a plane")
	}
	s.startPlane(t)
	s.reroute(t, "killedge")
	s.awaitNoProblem(t)
	f.none(t)
}

// TestKillPlaneWhileKubectlWrites kills the plane while many objects are created.
// Everything that kubectl was told to exist is there afterwards.
func TestKillPlaneWhileKubectlWrites(t *testing.T) {
	const objects, killAfter = 1500, 200
	s := shared(t)
	s.namespace(t, "writes")
	f := s.startTraffic(t, newsHost)
	var manifest strings.Builder
	for i := range objects {
		fmt.Fprintf(&manifest, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: n%d, namespace: writes}\n---\n", i)
	}
	var told lockedBuffer
	c := s.plane.Machine.Command(t.Context(), s.Kubectl, "--kubeconfig", s.plane.Kubeconfig(), "create", "-f", "-")
	c.Stdin, c.Stdout = strings.NewReader(manifest.String()), &told
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s.await(t, "kubectl to be in the middle of it", func(context.Context) error {
		if n := strings.Count(told.String(), "created"); n < killAfter {
			return fmt.Errorf("%d objects are created", n)
		}
		return nil
	})
	s.plane.Process.Kill9()
	if err := c.Wait(); err == nil {
		t.Error("kubectl was done before the plane was killed: this test needs more objects")
	}
	s.startPlane(t)
	list, err := s.api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("writes").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, o := range list.Items {
		there["configmap/"+o.GetName()] = true
	}
	acknowledged := 0
	for line := range strings.Lines(told.String()) {
		name, ok := strings.CutSuffix(strings.TrimSpace(line), " created")
		if !ok {
			t.Errorf("kubectl says %q", line)
		}
		if acknowledged++; !there[name] {
			t.Errorf("%s was acknowledged and is gone", name)
		}
	}
	t.Logf("%d of %d objects were acknowledged, %d are there", acknowledged, objects, len(list.Items))
	s.awaitNoProblem(t)
	f.none(t)
}

// TestStopAgentLeavesEnvoy stops an agent as an upgrade does.
func TestStopAgentLeavesEnvoy(t *testing.T) {
	s := shared(t)
	s.namespace(t, "stopagent")
	a, envoy := s.agents[edge2.Name], s.envoy(t, edge2.Name)
	f := s.startTraffic(t, newsHost)
	if err := a.Process.Stop(t.Context(), stopTime); err != nil {
		t.Fatal(err)
	}
	f.more(t, 100)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.AwaitReady(t.Context()), s.plane.AwaitConnected(t.Context(), a.Machine)); err != nil {
		t.Fatal(err)
	}
	if now := s.envoy(t, edge2.Name); now.Pid != envoy.Pid {
		t.Errorf("Envoy is process %d, want process %d taken over", now.Pid.ID, envoy.Pid.ID)
	}
	s.reroute(t, "stopagent")
	f.none(t)
}
