package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/cluster"
)

const (
	// patience bounds waits for what is expected to happen.
	patience = 4 * time.Minute
	tick     = 100 * time.Millisecond
	echo     = "localhost/echo:1"
	// planes is the address of the planes' Service: the cluster has no DNS.
	planes = "10.96.0.77"
)

// site is a cluster of two nodes, with three APIs on an etcd of three, into which Fairlead is
// installed, and a client.
type site struct {
	t       *testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	client  *lab.Machine
	helm    string
	home    string // Helm's
	turn    int    // of the route that change turns, between its backends
}

// newSite starts the cluster with the images in it. They are those of FAIRLEAD_IMAGES, or
// made now of the program.
func newSite(t *testing.T) *site {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	if err := cluster.Supported(); err != nil {
		t.Fatal(err)
	}
	tools, err := filepath.Abs(filepath.Join(root, ".tools", "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	if named := os.Getenv("FAIRLEAD_CLUSTER"); named != "" {
		tools = named
	}
	dir := os.Getenv("FAIRLEAD_IMAGES")
	if dir == "" {
		dir = makeImages(t)
	}
	backend := filepath.Join(t.TempDir(), "echo.tar")
	if err := (cluster.Image{Names: []string{echo}, Program: filepath.Join(tools, "echo-basic")}).Write(backend); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{
		Name: fmt.Sprintf("kubernetes-%d", os.Getpid()), Tools: tools, Controls: 3,
		Images:   []string{backend, filepath.Join(dir, "fairlead-plane.tar"), filepath.Join(dir, "fairlead-edge.tar")},
		Machines: []lab.MachineSpec{{Name: "client", Role: lab.RoleClient}},
		Lab:      lab.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, ctx: ctx, cluster: c, client: c.Lab.Machine("client"), helm: helmPath(t), home: t.TempDir()}
	state := c.Lab.State()
	t.Cleanup(func() {
		if t.Failed() {
			s.tell()
		}
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if left, err := lab.Leftovers(state); err != nil || len(left) > 0 {
			t.Errorf("the cluster left %v (%v)", left, err)
		}
	})
	return s
}

// makeImages makes the images of FAIRLEAD_BINARY, or of what `make build` made.
func makeImages(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	binary, envoy := os.Getenv("FAIRLEAD_BINARY"), os.Getenv("FAIRLEAD_ENVOY")
	if binary == "" {
		binary = filepath.Join("bin", "fairlead")
	}
	if envoy == "" {
		envoy = filepath.Join(".tools", "envoy")
	}
	command := exec.CommandContext(t.Context(), "go", "run", "./tools/images", "-fairlead", binary, "-envoy", envoy, "-out", dir)
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make the images (make build makes the program): %v: %s", err, out)
	}
	return dir
}

// tell logs what there is to know of an installation that does not work.
func (s *site) tell() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods,ds,deploy,lease,machines", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", "fairlead-system", "logs", "-l", "app.kubernetes.io/component=plane", "--prefix", "--tail=25"},
		{"-n", "fairlead-edge", "logs", "-l", "app.kubernetes.io/component=agent", "--prefix", "--tail=40"},
		{"-n", "fairlead-edge", "logs", "-l", "app.kubernetes.io/component=agent", "--prefix", "--tail=20", "--previous"},
	} {
		out, _ := s.command(ctx, s.cluster.Program("kubernetes"), append([]string{"kubectl", "--kubeconfig", s.cluster.Kubeconfig()}, args...)...).CombinedOutput()
		s.t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
}

// command runs a program of the administrator's, on the machine with the API.
func (s *site) command(ctx context.Context, program string, args ...string) *lab.Command {
	command := s.cluster.Control.Command(ctx, append([]string{program}, args...)...)
	command.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*", "HOME="+s.home, "KUBECACHEDIR="+s.home,
		"HELM_CACHE_HOME="+s.home, "HELM_CONFIG_HOME="+s.home, "HELM_DATA_HOME="+s.home)
	return command
}

func (s *site) try(program string, args ...string) (string, error) {
	out, err := s.command(s.ctx, program, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// tryKubectl runs kubectl as the administrator.
func (s *site) tryKubectl(args ...string) (string, error) {
	return s.try(s.cluster.Program("kubernetes"), append([]string{"kubectl", "--kubeconfig", s.cluster.Kubeconfig()}, args...)...)
}

func (s *site) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.tryKubectl(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// apply applies a manifest.
func (s *site) apply(text string) {
	s.t.Helper()
	command := s.command(s.ctx, s.cluster.Program("kubernetes"), "kubectl", "--kubeconfig", s.cluster.Kubeconfig(), "apply", "-f", "-")
	command.Stdin = strings.NewReader(text)
	if out, err := command.CombinedOutput(); err != nil {
		s.t.Fatalf("apply: %v: %s\n%s", err, out, text)
	}
}

// runHelm runs Helm as the administrator.
func (s *site) runHelm(args ...string) string {
	s.t.Helper()
	out, err := s.try(s.helm, append(args, "--kubeconfig", s.cluster.Kubeconfig())...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// eventually tries until there is no error.
func (s *site) eventually(what string, try func() error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s: %v", what, err)
		case <-time.After(tick):
		}
	}
}

// pod is where one of ours runs.
type pod struct{ Name, Node, IP string }

// pods are those of a component that are ready and not on their way out.
func (s *site) pods(namespace, component string) ([]pod, error) {
	out, err := s.tryKubectl("-n", namespace, "get", "pods", "-l", "app.kubernetes.io/component="+component, "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name, DeletionTimestamp string }
			Spec     struct{ NodeName string }
			Status   struct {
				PodIP      string
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	var found []pod
	for _, i := range list.Items {
		ready := slices.ContainsFunc(i.Status.Conditions, func(c struct{ Type, Status string }) bool { return c.Type == "Ready" && c.Status == "True" })
		if ready && i.Metadata.DeletionTimestamp == "" {
			found = append(found, pod{i.Metadata.Name, i.Spec.NodeName, i.Status.PodIP})
		}
	}
	return found, nil
}

// awaitPods waits for so many ready pods of a component.
func (s *site) awaitPods(namespace, component string, n int) []pod {
	s.t.Helper()
	var found []pod
	s.eventually(fmt.Sprintf("%d ready pods of the %s", n, component), func() (err error) {
		if found, err = s.pods(namespace, component); err == nil && len(found) != n {
			err = fmt.Errorf("there are %v", found)
		}
		return err
	})
	return found
}

// leader is the pod that holds the Lease, and the epoch.
func (s *site) leader() (name, epoch string, err error) {
	out, err := s.tryKubectl("-n", "fairlead-system", "get", "lease", "fairlead-plane", "-o", `jsonpath={.spec.holderIdentity} {.metadata.annotations.fairlead\.dev/epoch}`)
	if err != nil {
		return "", "", err
	}
	holder, epoch, _ := strings.Cut(strings.TrimSpace(out), " ")
	found, err := s.pods("fairlead-system", "plane")
	if err != nil {
		return "", "", err
	}
	for _, p := range found {
		if strings.HasPrefix(holder, p.Name+"-") {
			return p.Name, epoch, nil
		}
	}
	return "", epoch, fmt.Errorf("%q holds the lease, and is none of %v", holder, found)
}

// get asks a node for a host's path and returns which pod answered.
func (s *site) get(client *http.Client, address, host, path string) (string, error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	req.Host = host
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s of %s at %s: %s: %s", path, host, address, res.Status, body)
	}
	var answer struct{ Pod string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("%s of %s at %s: %w: %s", path, host, address, err, body)
	}
	return answer.Pod, nil
}
