package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairlead.dev/internal/translate"
	"fairlead.dev/lab"
	"fairlead.dev/lab/cluster"
	"fairlead.dev/lab/rig"
)

// suiteMachine is the machine that the suite runs on.
const suiteMachine = "client"

const gatewayClass = "fairlead"

// vips are the addresses of a run, on the segment of the nodes. No machine of the lab has
// one of them.
type vips struct{ pool, static, usable, unusable string }

// familyVariable chooses the family of VIPs and Services: 4, which is the default, or 6.
const familyVariable = "FAIRLEAD_CONFORMANCE_FAMILY"

func addresses() vips {
	if os.Getenv(familyVariable) == "6" {
		return vips{pool: "fd77::c8:0/112", static: "fd77::c9:0/124", usable: "fd77::c9:1", unusable: "2001:db8::7"}
	}
	return vips{pool: "10.77.200.0/24", static: "10.77.201.0/28", usable: "10.77.201.1", unusable: "198.51.100.7"}
}

// agentPort is where agents find the plane: the usual one is a listener's in the suite.
const agentPort = "7440"

// echoNames are what the suite's manifests call the echo server of its own module.
var echoNames = []string{
	"registry.k8s.io/gateway-api/echo-basic:v1.5.1",
	"registry.k8s.io/gateway-api/echo-basic:v1.6.0-dev.2",
	"registry.k8s.io/gateway-api/echo-basic:v1.6.0-dev.3",
	"registry.k8s.io/gateway-api/echo-advanced:v1.5.1",
}

// The suite's UDP profile asks a CoreDNS.
const dnsName = "registry.k8s.io/coredns/coredns:v1.12.2"

// resources are what the suite expects to find, and the pools. Of the static one an address
// is taken only by request.
func resources() string {
	a := addresses()
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: %s}
spec: {controllerName: %s}
---
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: segment}
spec: {addresses: [%q], announce: L2}
---
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: static}
spec: {addresses: [%q], announce: L2, assign: OnRequest}
`, gatewayClass, translate.ControllerName, a.pool, a.static)
}

// site is a cluster in which Fairlead runs.
type site struct {
	cluster *cluster.Cluster
	rig     *rig.Rig
	plane   *rig.Plane
	agents  []*rig.Agent
}

// startSite starts a cluster and Fairlead in it.
func startSite(ctx context.Context, name string) (*site, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return nil, err
	}
	tools := os.Getenv("FAIRLEAD_CLUSTER")
	if tools == "" {
		tools = filepath.Join(root, ".tools", "cluster")
	}
	r := &rig.Rig{Now: time.Now, Binary: findBinary(root)}
	for _, needed := range []string{r.Binary, filepath.Join(tools, "echo-basic")} {
		if _, err := os.Stat(needed); err != nil {
			return nil, fmt.Errorf("%w (make test-only PACKAGES=./test/conformance builds what the suite runs with)", err)
		}
	}
	if r.Envoy = os.Getenv("FAIRLEAD_ENVOY"); r.Envoy == "" {
		r.Envoy = filepath.Join(root, ".tools", "envoy")
	}
	if r.Kubectl, err = rig.FindKubectl(r.Binary); err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "fairlead-conformance-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	echo, dns := filepath.Join(scratch, "echo.tar"), filepath.Join(scratch, "dns.tar")
	if err := (cluster.Image{Names: echoNames, Program: filepath.Join(tools, "echo-basic")}).Write(echo); err != nil {
		return nil, err
	}
	if err := (cluster.Image{Names: []string{dnsName}, Program: filepath.Join(tools, "coredns")}).Write(dns); err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := cluster.Start(ctx, cluster.Options{
		Name: name, Tools: tools, Images: []string{echo, dns}, IPv6: os.Getenv(familyVariable) == "6",
		Machines: []lab.MachineSpec{{Name: suiteMachine, Role: lab.RoleClient}, {Name: "plane", Role: lab.RolePlane}},
		Lab:      lab.Options{Log: log},
	})
	if err != nil {
		return nil, err
	}
	r.Lab = c.Lab
	s := &site{cluster: c, rig: r}
	if err := s.startFairlead(ctx); err != nil {
		logs := s.logTails()
		return nil, errors.Join(err, errors.New(logs), s.close())
	}
	return s, nil
}

// openSite opens the site of another process.
func openSite(name string) (*site, error) {
	c, err := cluster.Open(name, lab.Options{})
	return &site{cluster: c, rig: &rig.Rig{Binary: findBinary(filepath.Join("..", ".."))}}, err
}

// findBinary is FAIRLEAD_BINARY, else the one that `make build` made.
func findBinary(root string) string {
	if binary := os.Getenv("FAIRLEAD_BINARY"); binary != "" {
		return binary
	}
	return filepath.Join(root, "bin", "fairlead")
}

// startFairlead starts the plane and the agents, and makes what the suite expects to find.
func (s *site) startFairlead(ctx context.Context) error {
	machine := s.cluster.Lab.Machine("plane")
	dir, err := machine.Dir("plane")
	if err != nil {
		return err
	}
	// The rig looks for the administrator's kubeconfig in the plane's directory.
	if err := os.Symlink(s.cluster.Kubeconfig(), filepath.Join(dir, "admin.kubeconfig")); err != nil {
		return err
	}
	s.plane, err = s.rig.StartPlane(ctx, machine, rig.PlaneOptions{
		AgentPort: agentPort, Args: []string{"--kubeconfig", s.cluster.Kubeconfig()},
	})
	if err != nil {
		return err
	}
	for _, m := range s.cluster.Nodes {
		a, err := s.rig.StartAgent(ctx, m, s.plane)
		if err != nil {
			return err
		}
		s.agents = append(s.agents, a)
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	_, err = s.plane.Apply(ctx, resources())
	return err
}

func (s *site) await(ctx context.Context) error {
	for _, a := range s.agents {
		if err := a.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return s.plane.AwaitConnected(ctx, s.cluster.Nodes...)
}

// restart starts the plane and the agents again.
func (s *site) restart(ctx context.Context) error {
	for _, a := range s.agents {
		_ = a.Process.Stop(ctx, 20*time.Second)
	}
	_ = s.plane.Process.Stop(ctx, 20*time.Second)
	if err := s.plane.Start(ctx); err != nil {
		return err
	}
	for _, a := range s.agents {
		if err := a.Start(ctx); err != nil {
			return err
		}
	}
	return s.await(ctx)
}

// close takes the site away.
func (s *site) close() error {
	state := s.cluster.Lab.State()
	if err := s.cluster.Close(context.Background()); err != nil {
		return err
	}
	left, err := lab.Leftovers(state)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left over: %s", strings.Join(left, ", ")))
	}
	return err
}

// logTails are the last lines of Fairlead's logs.
func (s *site) logTails() string {
	var out strings.Builder
	for _, p := range s.cluster.Lab.State().Processes {
		if p.Name != "plane" && p.Name != "agent" {
			continue
		}
		raw, err := os.ReadFile(p.Log)
		if err != nil {
			continue
		}
		fmt.Fprintf(&out, "%s on %s:\n%s\n", p.Name, p.Machine, raw[max(0, len(raw)-3000):])
	}
	return out.String()
}
