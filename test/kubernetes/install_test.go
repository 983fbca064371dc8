package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/examples"
	"fairlead.dev/lab"
)

// hosts of the examples, and the Services whose pods answer them.
var hosts = map[string][]string{
	"news.yahoo.co.jp":       {"os1-6f671e13-1fbd-4c6d-a1db-31a565bb019c", "k8s1-7877d3b4-a471-4f38-9459-69659a593b38"},
	"news.example.com":       {"os1-6f671e13-1fbd-4c6d-a1db-31a565bb019c", "k8s1-7877d3b4-a471-4f38-9459-69659a593b38"},
	"team01-app.example.com": {"up01-team01-app", "up02-team01-d1b6f7a2-4c52-4f0e-9a53-2f6c0b7f9e11"},
}

// namespaceOf an example's Services, and the name of each one's port.
var backends = []struct{ namespace, service, port string }{
	{"news-team", "os1-6f671e13-1fbd-4c6d-a1db-31a565bb019c", "port-80"},
	{"news-team", "k8s1-7877d3b4-a471-4f38-9459-69659a593b38", "http"},
	{"team01", "up01-team01-app", "http"},
	{"team01", "up02-team01-d1b6f7a2-4c52-4f0e-9a53-2f6c0b7f9e11", "port-80"},
}

// TestInstallation: the chart is installed on two nodes and carries the examples; its
// planes and agents die and are replaced under load; and nothing of it stays.
func TestInstallation(t *testing.T) {
	s := newSite(t)
	before := s.everything()
	install := []string{
		"install", "fairlead", chart, "--namespace", "fairlead-system", "--create-namespace", "--wait", "--timeout", "10m",
		"--set", "plane.service.clusterIP=" + planes, "--set", "agent.planes={" + planes + ":7443}", "--set", "agent.drainSeconds=12",
	}
	s.runHelm(install...)
	leading := s.awaitPods("fairlead-system", "plane", 2)
	if leading[0].Node == leading[1].Node {
		t.Errorf("both planes are on node %s", leading[0].Node)
	}
	s.awaitPods("fairlead-edge", "agent", 2)
	if machines := s.kubectl("get", "machines", "-o", "name"); machines != "machine.fairlead.dev/n1\nmachine.fairlead.dev/n2" {
		t.Errorf("the machines are %q", machines)
	}
	s.applyExamples()
	s.serves()
	s.servesAVIP()
	s.tellsOfIt()
	s.survivesItsLeader()
	s.survivesOneOfThree()
	s.drainsWhenUpgraded()
	s.keepsToItsRights()
	s.servesWithoutPlanes()
	s.keepsToItsRights()
	s.leavesNothing(before)
}

// tellsOfIt: the plane may write Events, and has told of a machine and of a Gateway.
func (s *site) tellsOfIt() {
	s.t.Helper()
	s.eventually("there are Events of a machine and a Gateway", func() error {
		out, err := s.tryKubectl("get", "events", "-A", "-o", `jsonpath={range .items[?(@.source.component=="fairlead")]}{.involvedObject.kind}={.reason} {end}`)
		if err == nil && (!strings.Contains(out, "Machine=Ready") || !strings.Contains(out, "Gateway=Programmed")) {
			err = fmt.Errorf("there are %q", out)
		}
		return err
	})
}

// applyExamples applies two of them unchanged, and the pods that stand for their backends.
func (s *site) applyExamples() {
	s.t.Helper()
	err := fs.WalkDir(examples.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") || strings.HasPrefix(path, "network") {
			return err
		}
		text, err := fs.ReadFile(examples.Files, path)
		if err == nil && strings.HasSuffix(path, "backends.yaml") {
			s.apply(string(text)) // its namespace comes first
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.apply(mustRead(s.t, "news/gateway.yaml") + "\n---\n" + mustRead(s.t, "news/ingressroute.yaml") + "\n---\n" + mustRead(s.t, "team01/ingressroute.yaml"))
	var pods strings.Builder
	for _, b := range backends {
		fmt.Fprintf(&pods, `
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: %[1]s, labels: {answers: %[2]s}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: echo
    image: %[3]s
    env:
    - {name: NAMESPACE, value: %[1]s}
    - {name: POD_NAME, value: %[2]s}
---
`, b.namespace, b.service, echo)
	}
	s.apply(pods.String())
	var slices strings.Builder
	for _, b := range backends {
		var ip string
		s.eventually("backend "+b.service+" has an address", func() (err error) {
			if ip, err = s.tryKubectl("-n", b.namespace, "get", "pod", b.service, "-o", "jsonpath={.status.podIP}"); err == nil && ip == "" {
				err = errors.New("it has none")
			}
			return err
		})
		fmt.Fprintf(&slices, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s-1, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{name: %[3]s, port: 3000}]
endpoints: [{addresses: [%[4]s]}]
---
`, b.namespace, b.service, b.port, ip)
	}
	s.apply(slices.String())
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := fs.ReadFile(examples.Files, path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// serves: every host is answered by all of its backends, through each node.
func (s *site) serves() {
	s.t.Helper()
	client := s.client.HTTPClient()
	for host, wanted := range hosts {
		for _, node := range s.cluster.Nodes {
			missing := map[string]bool{}
			for _, w := range wanted {
				missing[w] = true
			}
			s.eventually(fmt.Sprintf("%s is served on node %s", host, node.Name()), func() error {
				pod, err := s.get(client, node.Addr4().String(), host, "/")
				if err != nil {
					return err
				}
				if delete(missing, pod); !slices.Contains(wanted, pod) {
					s.t.Fatalf("%s was answered by %s", host, pod)
				}
				if len(missing) > 0 {
					return fmt.Errorf("not answered yet: %v", slices.Collect(maps.Keys(missing)))
				}
				return nil
			})
		}
	}
}

// vip is an address that no machine of the lab has.
const vip = "10.77.201.1"

// servesAVIP: a Gateway asks for an address of its own on the nodes' segment; one of the
// agents must be allowed to hold it and to answer for it.
func (s *site) servesAVIP() {
	s.t.Helper()
	s.apply(`
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: segment}
spec: {addresses: [10.77.201.0/28], announce: L2, assign: OnRequest}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: vip, namespace: team01}
spec:
  gatewayClassName: fairlead
  addresses: [{value: ` + vip + `}]
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: vip, namespace: team01}
spec:
  parentRefs: [{name: vip}]
  rules: [{backendRefs: [{name: up01-team01-app, port: 80}]}]
`)
	client := s.client.HTTPClient()
	s.eventually("the Gateway is served at its VIP", func() error {
		_, err := s.get(client, vip, "vip.example.com", "/")
		return err
	})
}

// load asks all hosts on all nodes until it is stopped.
type load struct {
	stop func() (asked int, failed []string)
}

// begin starts a load on the hosts, and on more of them. When nodes may go, it spreads over those whose pods are ready, as
// whatever balances over nodes would; either way no request may fail.
func (s *site) begin(nodesGo bool, more ...string) load {
	var mu sync.Mutex
	var asked int
	var failed []string
	ready := s.cluster.Nodes
	done := make(chan struct{})
	var workers sync.WaitGroup
	if nodesGo {
		workers.Go(func() {
			for {
				found, err := s.pods("fairlead-edge", "agent")
				var now []*lab.Machine
				for _, n := range s.cluster.Nodes {
					if slices.ContainsFunc(found, func(p pod) bool { return p.Node == n.Name() }) {
						now = append(now, n)
					}
				}
				mu.Lock()
				if err == nil && len(now) > 0 {
					ready = now
				}
				mu.Unlock()
				select {
				case <-done:
					return
				case <-time.After(tick):
				}
			}
		})
	}
	names := append(slices.Sorted(maps.Keys(hosts)), more...)
	for i := range 4 {
		workers.Go(func() {
			client := s.client.HTTPClient()
			if i%2 == 0 { // half of them come anew for each request
				client.Transport.(*http.Transport).DisableKeepAlives = true
			}
			for n := i; ; n++ {
				select {
				case <-done:
					return
				case <-time.After(10 * time.Millisecond):
				}
				mu.Lock()
				node := ready[n%len(ready)]
				mu.Unlock()
				_, err := s.get(client, node.Addr4().String(), names[n%len(names)], "/")
				mu.Lock()
				asked++
				if err != nil {
					failed = append(failed, fmt.Sprintf("%s: %v", time.Now().Format(time.TimeOnly), err))
				}
				mu.Unlock()
			}
		})
	}
	stop := sync.OnceFunc(func() { close(done); workers.Wait() })
	s.t.Cleanup(stop)
	return load{func() (int, []string) { stop(); return asked, failed }}
}

// survivesItsLeader kills the leading plane under load: the standby leads, no request
// fails, and what is applied then is served.
func (s *site) survivesItsLeader() {
	s.t.Helper()
	var leader, epoch string
	s.eventually("a plane leads", func() (err error) {
		leader, epoch, err = s.leader()
		return err
	})
	l := s.begin(false)
	s.kubectl("-n", "fairlead-system", "delete", "pod", leader, "--grace-period=0", "--force")
	s.eventually("the standby leads", func() error {
		now, e, err := s.leader()
		if err == nil && (now == leader || e == epoch) {
			err = fmt.Errorf("%s leads in epoch %s", now, e)
		}
		return err
	})
	s.apply(`
apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: after, namespace: team01}
spec:
  virtualhost: {fqdn: after.example.com}
  routes: [{match: /, services: [{name: up01-team01-app, port: 80}]}]
`)
	client := s.client.HTTPClient()
	for _, node := range s.cluster.Nodes {
		s.eventually("a new route is served on "+node.Name(), func() error {
			_, err := s.get(client, node.Addr4().String(), "after.example.com", "/")
			return err
		})
	}
	s.awaitPods("fairlead-system", "plane", 2)
	if asked, failed := l.stop(); asked < 100 || len(failed) > 0 {
		s.t.Errorf("while the leader was killed, of %d requests %d failed: %v", asked, len(failed), failed[:min(len(failed), 5)])
	} else {
		s.t.Logf("the leader was killed: %d requests, none failed", asked)
	}
}

// drainsWhenUpgraded replaces the agents one by one under load. A request that is under
// way when its pod is told to end is answered.
func (s *site) drainsWhenUpgraded() {
	s.t.Helper()
	old := s.awaitPods("fairlead-edge", "agent", 2)
	l := s.begin(true)
	s.runHelm("upgrade", "fairlead", chart, "--namespace", "fairlead-system", "--reuse-values", "--set", "agent.podAnnotations.upgraded=yes")
	client := s.client.HTTPClient()
	for range old {
		var going string
		s.eventually("a pod is told to end", func() error {
			out, err := s.tryKubectl("-n", "fairlead-edge", "get", "pods", "-l", "app.kubernetes.io/component=agent", "-o",
				`jsonpath={range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name} {.spec.nodeName}{"\n"}{end}`)
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				name, node, _ := strings.Cut(strings.TrimSpace(line), " ")
				i := slices.IndexFunc(old, func(p pod) bool { return p.Name == name })
				if i < 0 {
					continue
				}
				old, going = slices.Delete(old, i, i+1), node
				return nil
			}
			return fmt.Errorf("none is on its way: %q", out)
		})
		node := s.cluster.Nodes[slices.IndexFunc(s.cluster.Nodes, func(m *lab.Machine) bool { return m.Name() == going })]
		if _, err := s.get(client, node.Addr4().String(), "news.yahoo.co.jp", "/?delay=9s"); err != nil {
			s.t.Errorf("a request on node %s, under way while its pod ended: %v", going, err)
		}
	}
	s.awaitPods("fairlead-edge", "agent", 2)
	s.serves()
	s.eventually("the VIP is served again", func() error {
		_, err := s.get(client, vip, "vip.example.com", "/")
		return err
	})
	asked, failed := l.stop()
	if asked < 100 || len(failed) > 0 {
		s.t.Errorf("while agents were replaced, of %d requests %d failed:\n%s", asked, len(failed), strings.Join(failed[:min(len(failed), 100)], "\n"))
	}
	s.t.Logf("agents were replaced: %d requests, %d failed", asked, len(failed))
}

// servesWithoutPlanes: with every plane gone, a new pod on a node serves what the one
// before it remembered there.
func (s *site) servesWithoutPlanes() {
	s.t.Helper()
	s.kubectl("-n", "fairlead-system", "scale", "deployment", "fairlead-plane", "--replicas=0")
	s.awaitPods("fairlead-system", "plane", 0)
	old := s.awaitPods("fairlead-edge", "agent", 2)
	s.kubectl("-n", "fairlead-edge", "delete", "pod", old[0].Name)
	s.eventually("another pod is ready", func() error {
		found, err := s.pods("fairlead-edge", "agent")
		if err == nil && (len(found) != 2 || slices.Contains(found, old[0])) {
			err = fmt.Errorf("there are %v", found)
		}
		return err
	})
	s.serves()
	s.kubectl("-n", "fairlead-system", "scale", "deployment", "fairlead-plane", "--replicas=2")
	s.awaitPods("fairlead-system", "plane", 2)
	s.eventually("the machines are connected again", func() error {
		out, err := s.tryKubectl("get", "machines", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err == nil && strings.TrimSpace(out) != "n1=True n2=True" {
			err = fmt.Errorf("they are %q", out)
		}
		return err
	})
}

// keepsToItsRights: nothing was forbidden to the planes.
func (s *site) keepsToItsRights() {
	s.t.Helper()
	log := s.kubectl("-n", "fairlead-system", "logs", "-l", "app.kubernetes.io/component=plane", "--tail=-1")
	for line := range strings.Lines(log) {
		if strings.Contains(line, "forbidden") || strings.Contains(line, `"level":"ERROR"`) {
			s.t.Errorf("a plane says: %s", line)
		}
	}
}

// everything names all objects, but those that a cluster makes of itself.
func (s *site) everything() map[string]bool {
	s.t.Helper()
	kinds := strings.Fields(s.kubectl("api-resources", "--verbs=list", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(k string) bool {
		return strings.HasPrefix(k, "events") || strings.HasPrefix(k, "componentstatuses")
	})
	all := map[string]bool{}
	out := s.kubectl("get", strings.Join(kinds, ","), "-A", "--ignore-not-found", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		all[strings.TrimSpace(line)] = true
	}
	return all
}

// leavesNothing uninstalls it. What people have written stays, with its definitions.
func (s *site) leavesNothing(before map[string]bool) {
	s.t.Helper()
	s.kubectl("delete", "namespace", "news-team", "team01")
	s.runHelm("uninstall", "fairlead", "--namespace", "fairlead-system", "--wait", "--timeout", "5m")
	s.eventually("nothing is left", func() error {
		var left []string
		for o := range s.everything() {
			if !before[o] && !stays(o) {
				left = append(left, o)
			}
		}
		if slices.Sort(left); len(left) > 0 {
			return fmt.Errorf("left over: %s", strings.Join(left, ", "))
		}
		return nil
	})
	for _, m := range s.cluster.Nodes {
		residents, err := m.Residents()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range residents {
			if strings.HasPrefix(r.CommandLine, "/usr/local/bin/") {
				s.t.Errorf("left running on node %s: %s", m.Name(), r.CommandLine)
			}
		}
		addresses, err := m.Command(s.ctx, "ip", "-oneline", "address").Output()
		if err != nil || strings.Contains(string(addresses), " "+vip+"/") {
			s.t.Errorf("node %s has %s still (%v): %s", m.Name(), vip, err, addresses)
		}
	}
}

// stays says whether an object is the people's: definitions and what is stored in them,
// and the namespace that the person who installs has made.
func stays(object string) bool {
	for _, kind := range []string{
		"CustomResourceDefinition/", "ValidatingAdmissionPolicy/", "ValidatingAdmissionPolicyBinding/", "Machine/", "APIService/",
		"Gateway/default/", "IngressRoute/default/", "AddressPool/", "Lease/kube-node-lease/",
	} {
		if strings.HasPrefix(object, kind) {
			return true
		}
	}
	return slices.Contains([]string{
		"Namespace//fairlead-system", "ServiceAccount/fairlead-system/default", "ConfigMap/fairlead-system/kube-root-ca.crt",
	}, object)
}
