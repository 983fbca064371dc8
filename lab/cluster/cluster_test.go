package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.dev/lab"
)

// ownerVariable makes this program bring up a cluster of that name and wait to be killed.
const ownerVariable = "FAIRLEAD_CLUSTER_TEST_OWNER"

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	if name := os.Getenv(ownerVariable); name != "" {
		if _, err := startWithPods(context.Background(), Options{Name: name}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("up")
		select {}
	}
	os.Exit(m.Run())
}

// startWithPods starts a cluster with an echo server on each of its two nodes.
func startWithPods(ctx context.Context, o Options) (*Cluster, error) {
	tools := os.Getenv("FAIRLEAD_CLUSTER")
	if tools == "" {
		tools = filepath.Join("..", "..", ".tools", "cluster")
	}
	tools, err := filepath.Abs(tools)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "fairlead-cluster-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	image := filepath.Join(scratch, "echo.tar")
	if err := (Image{Names: []string{"localhost/echo:1"}, Program: filepath.Join(tools, "echo-basic")}).Write(image); err != nil {
		return nil, err
	}
	o.Tools, o.Images = tools, []string{image}
	c, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if _, err = c.kubectl(ctx, "apply", "-f", "testdata/echo.yaml"); err == nil {
		_, err = c.kubectl(ctx, "wait", "--for=condition=Available", "deployment/echo", "--timeout=120s")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	if err := Supported(); err != nil {
		t.Fatal(err)
	}
}

// testLog writes to the test's log.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// Two nodes run pods from an image that was imported, pods of both nodes are reached from
// a third machine, a Service's address works at a node, logs can be read; nothing is left.
func TestCluster(t *testing.T) {
	needRoot(t)
	t.Run("IPv4", func(t *testing.T) { testCluster(t, false) })
	t.Run("IPv6", func(t *testing.T) { testCluster(t, true) })
}

func testCluster(t *testing.T, ipv6 bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := startWithPods(ctx, Options{Name: fmt.Sprintf("cluster-%d", os.Getpid()), IPv6: ipv6, Lab: lab.Options{Log: testLog(t)}})
	if err != nil {
		t.Fatal(err)
	}
	state := c.Lab.State()
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if left, err := lab.Leftovers(state); err != nil || len(left) > 0 {
			t.Errorf("the cluster left %v (%v)", left, err)
		}
	})
	out, err := c.kubectl(ctx, "get", "pods", "-l", "app=echo", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name} {.status.podIPs[*].ip}{"\n"}{end}`)
	if err != nil {
		t.Fatal(err)
	}
	pods := strings.Split(strings.TrimSpace(out), "\n")
	if len(pods) != 2 || strings.Fields(pods[0])[0] == strings.Fields(pods[1])[0] {
		t.Fatalf("pods %q: want one on each node", pods)
	}
	families := 1
	if ipv6 {
		families = 2
	}
	for _, pod := range pods {
		addresses := strings.Fields(pod)[2:]
		if len(addresses) != families {
			t.Errorf("pod %s has the addresses %v, want %d", pod, addresses, families)
		}
		for _, address := range addresses {
			response, err := c.Control.HTTPClient().Get("http://" + net.JoinHostPort(address, "3000") + "/")
			if err != nil {
				t.Errorf("reach pod %s: %v", pod, err)
				continue
			}
			_ = response.Body.Close()
		}
	}
	service, err := c.kubectl(ctx, "get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(service, ":") != ipv6 {
		t.Errorf("the Service's address is %s", service)
	}
	err = c.await(ctx, "the Service's address to work", func() error {
		response, err := c.Nodes[0].HTTPClient().Get("http://" + net.JoinHostPort(service, "80") + "/")
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if log, err := c.kubectl(ctx, "logs", strings.Fields(pods[0])[1]); err != nil || !strings.Contains(log, "Starting server") {
		t.Errorf("the pod's log is %q (%v)", log, err)
	}
	// No process of the cluster is on the host's network, and none of its links.
	if link, err := netlink.LinkByName("cni0"); err == nil {
		t.Errorf("the host has a link of the cluster's: %v", link.Attrs())
	}
}

// When whoever started a cluster is killed, everything goes with it: pods, mounts, control
// groups.
func TestKilledOwner(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("killed-%d", os.Getpid())
	owner := exec.CommandContext(t.Context(), os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"="+name)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("the owner said %q (%v)", line, err)
	}
	state, err := lab.Read(lab.DefaultDir, name)
	if err != nil {
		t.Fatal(err)
	}
	nodes := nodeProcesses(t, name)
	if !strings.Contains(strings.Join(nodes, " "), "echo-basic") {
		t.Fatalf("no pod is among the nodes' processes %v", nodes)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	limit := time.Now().Add(2 * time.Minute)
	for {
		left, err := lab.Leftovers(state)
		if err != nil {
			t.Fatal(err)
		}
		for _, process := range nodes {
			id, _, _ := strings.Cut(process, " ")
			if text, err := os.ReadFile("/proc/" + id + "/comm"); err == nil && strings.HasSuffix(process, " "+strings.TrimSpace(string(text))) {
				left = append(left, process)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("left over: %v", left)
		}
		time.Sleep(tick)
	}
}

// nodeProcesses are the processes in the process namespaces of a cluster's nodes, those
// of pods among them: "id name".
func nodeProcesses(t *testing.T, name string) []string {
	t.Helper()
	c, err := Open(name, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Lab.Close()
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	spaces := map[string]bool{}
	for _, m := range c.Nodes {
		residents, err := m.Residents()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range residents {
			if space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", r.Pid.ID)); err == nil && space != own {
				spaces[space] = true
			}
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		comm, err := os.ReadFile("/proc/" + e.Name() + "/comm")
		if err != nil {
			continue
		}
		// Pods have process namespaces below that of their node.
		if space, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && (spaces[space] || spaces[parentSpace(e.Name())]) {
			found = append(found, e.Name()+" "+strings.TrimSpace(string(comm)))
		}
	}
	return found
}

// parentSpace is the process namespace of the parent of a process.
func parentSpace(id string) string {
	status, err := os.ReadFile("/proc/" + id + "/status")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	parent, _, _ := strings.Cut(rest, "\n")
	space, _ := os.Readlink("/proc/" + parent + "/ns/pid")
	return space
}
