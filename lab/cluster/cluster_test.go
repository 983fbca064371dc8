package cluster

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/lab"
)

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	os.Exit(m.Run())
}

// testLog writes to the test's log.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// Two nodes run pods from an image that was imported, pods of both nodes are reached from
// a third machine, a Service's address works in a pod, logs can be read; nothing is left.
func TestCluster(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	if err := Supported(); err != nil {
		t.Fatal(err)
	}
	tools := os.Getenv("FAIRLEAD_CLUSTER")
	if tools == "" {
		tools, _ = filepath.Abs(filepath.Join("..", "..", ".tools", "cluster"))
	}
	image := filepath.Join(t.TempDir(), "echo.tar")
	if err := (Image{Names: []string{"localhost/echo:1"}, Program: filepath.Join(tools, "echo-basic")}).Write(image); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := Start(ctx, Options{Name: "cluster-test", Tools: tools, Images: []string{image}, Lab: lab.Options{Log: testLog(t)}})
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
	apply := c.Control.Command(ctx, c.Program("kubernetes"), "kubectl", "--kubeconfig", c.Kubeconfig(), "apply", "-f", "testdata/echo.yaml")
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("apply: %v: %s", err, out)
	}
	var pods []string
	err = c.await(ctx, "the pods to be ready", func() error {
		if _, err := c.kubectl(ctx, "wait", "--for=condition=Available", "deployment/echo", "--timeout=60s"); err != nil {
			return err
		}
		out, err := c.kubectl(ctx, "get", "pods", "-l", "app=echo", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.status.podIP} {.metadata.name}{"\n"}{end}`)
		pods = strings.Split(strings.TrimSpace(out), "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 2 || strings.Fields(pods[0])[0] == strings.Fields(pods[1])[0] {
		t.Fatalf("pods %q: want one on each node", pods)
	}
	for _, pod := range pods {
		address := strings.Fields(pod)[1]
		client := c.Control.HTTPClient()
		response, err := client.Get("http://" + address + ":3000/")
		if err != nil {
			t.Errorf("reach pod %s: %v", pod, err)
			continue
		}
		_ = response.Body.Close()
	}
	service, err := c.kubectl(ctx, "get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		t.Fatal(err)
	}
	err = c.await(ctx, "the Service's address to work", func() error {
		response, err := c.Nodes[0].HTTPClient().Get("http://" + service + ":80/")
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if log, err := c.kubectl(ctx, "logs", strings.Fields(pods[0])[2]); err != nil || !strings.Contains(log, "Starting server") {
		t.Errorf("the pod's log is %q (%v)", log, err)
	}
	// No process of the cluster is on the host's network, and none of its links.
	links, err := exec.Command("ip", "-o", "link").Output()
	if err != nil || strings.Contains(string(links), "cni0") {
		t.Errorf("the host has links of the cluster's: %s (%v)", links, err)
	}
}
