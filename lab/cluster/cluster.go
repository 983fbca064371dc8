package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/etcd"
	"fairlead.dev/lab/program"
)

// Roles of the machines of a cluster.
const (
	// RoleControl is a machine with an API.
	RoleControl lab.Role = "control"
	// RoleNode is a machine that runs pods.
	RoleNode lab.Role = "node"
)

const (
	// startTime is how long a cluster may take until its nodes are ready: seconds on a
	// quiet host, and a minute where much else runs.
	startTime = 5 * time.Minute
	tick      = 50 * time.Millisecond
	apiPort   = 6443

	defaultNodes = 2
)

// Where pods and Services have their addresses. They must not meet the segment's.
var (
	serviceNet = netip.MustParsePrefix("10.96.0.0/16")
	firstNet   = netip.MustParseAddr("10.244.1.0") // of the first node's pods, a /24

	serviceNet6 = netip.MustParsePrefix("fd96::/112")
	firstNet6   = netip.MustParseAddr("fd24:0:0:1::") // of the first node's pods, a /64
)

// Options say what a cluster is. Name is required.
type Options struct {
	// Name of the lab that the cluster is: a DNS label.
	Name string
	// Nodes is how many there are; 0 means two.
	Nodes int
	// Controls is how many machines have an API; 0 means one. With more, each of them has a
	// member of etcd too, with TLS, whose writes reach the disk. The first one has the
	// controllers and the scheduler, and its API is that of the nodes and of Kubeconfig; pods
	// go to any of them.
	Controls int
	// Tools is the directory that `tools/setup.sh cluster` fills; default: FindTools.
	Tools string
	// Images are files, as `docker save` writes them, that every node imports before the
	// cluster is ready.
	Images []string
	// IPv6 gives pods an address of each family, and Services that ask for nothing one of
	// IPv6. Without it all have addresses of IPv4.
	IPv6 bool
	// Machines are further machines of the lab, on the same segment as the nodes.
	Machines []lab.MachineSpec
	// Lab says how the lab is kept.
	Lab lab.Options

	// In is a lab with the machines of MachineSpecs, in which the cluster is started, beside others; nil: a lab of its own.
	// Such a cluster ends with its lab.
	In *lab.Lab
	// Prefix begins the names of the cluster's machines in a lab with several clusters, and Number, 0 to 9, chooses the
	// networks of its pods: each cluster has its own.
	Prefix string
	Number int
}

// MachineSpecs are the machines of the cluster, with those of Machines.
func (o Options) MachineSpecs() []lab.MachineSpec {
	specs := []lab.MachineSpec{{Name: o.Prefix + "control", Role: RoleControl}}
	for i := 1; i < o.Controls; i++ {
		specs = append(specs, lab.MachineSpec{Name: fmt.Sprintf("%scontrol-%d", o.Prefix, i+1), Role: RoleControl})
	}
	for i := range cmp.Or(o.Nodes, defaultNodes) {
		specs = append(specs, lab.MachineSpec{Name: fmt.Sprintf("%sn%d", o.Prefix, i+1), Role: RoleNode})
	}
	return append(specs, o.Machines...)
}

// Cluster is a running cluster. Its methods may be called concurrently.
type Cluster struct {
	// Lab that the cluster is.
	Lab *lab.Lab
	// Control is the machine with the API, the first one of several.
	Control *lab.Machine
	// APIs are all of them, Control's first. Etcd is their etcd, nil for one API. Clusters that
	// were opened have neither.
	APIs []*API
	Etcd *etcd.Cluster
	// Storage is the etcd of a single API.
	Storage *lab.Process
	// Nodes are the machines that run pods, in the order of their names.
	Nodes []*lab.Machine

	controls   []*lab.Machine
	guest      bool // in a lab that has more than the cluster
	number     int
	dir, tools string
	ipv6       bool
	log        *slog.Logger
}

// FindTools returns the directory of the cluster's programs: FAIRLEAD_CLUSTER, else
// .tools/cluster below the current directory.
func FindTools() (string, error) {
	dir := os.Getenv("FAIRLEAD_CLUSTER")
	if dir == "" {
		dir = filepath.Join(".tools", "cluster")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the cluster's programs: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kubernetes")); err != nil {
		return "", fmt.Errorf("find the cluster's programs (FAIRLEAD_CLUSTER names their directory, `tools/setup.sh cluster` makes it): %w", err)
	}
	return dir, nil
}

// Supported returns nil if clusters can be made here, else why not.
func Supported() error {
	if err := lab.Supported(); err != nil {
		return err
	}
	if _, err := program.FindAll(program.Containerd, program.Runc, program.Ctr, program.IPTables, program.Unshare, program.NSEnter); err != nil {
		return fmt.Errorf("%w: find the programs of a node: %w", lab.ErrUnsupported, err)
	}
	return nil
}

// Start builds a cluster and returns when its nodes are ready and pods can be made. When
// it fails, or ctx ends before it is done, nothing is left. The cluster lasts until Close,
// or until this process ends.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes == 0 {
		o.Nodes = defaultNodes
	}
	if o.Nodes < 1 || o.Nodes > 9 {
		return nil, fmt.Errorf("start cluster %s: %w number of nodes %d: want 1 to 9", o.Name, lab.ErrInvalid, o.Nodes)
	}
	if o.Controls == 0 {
		o.Controls = 1
	}
	if o.Controls < 1 || o.Controls > 9 {
		return nil, fmt.Errorf("start cluster %s: %w number of APIs %d: want 1 to 9", o.Name, lab.ErrInvalid, o.Controls)
	}
	if err := Supported(); err != nil {
		return nil, fmt.Errorf("start cluster %s: %w", o.Name, err)
	}
	if o.Number < 0 || o.Number > 9 {
		return nil, fmt.Errorf("start cluster %s: %w number %d: want 0 to 9", o.Name, lab.ErrInvalid, o.Number)
	}
	if o.Tools == "" {
		var err error
		if o.Tools, err = FindTools(); err != nil {
			return nil, fmt.Errorf("start cluster %s: %w", o.Name, err)
		}
	}
	if o.Lab.Log == nil {
		o.Lab.Log = slog.New(slog.DiscardHandler)
	}
	l := o.In
	if l == nil {
		var err error
		if l, err = lab.Up(ctx, lab.Topology{Name: o.Name, Machines: o.MachineSpecs()}, o.Lab); err != nil {
			return nil, fmt.Errorf("start cluster: %w", err)
		}
	}
	c := newCluster(l, o)
	bounded, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := c.build(bounded, o); err != nil {
		err = fmt.Errorf("start cluster %s: %w", o.Name, err)
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// Open returns a cluster that another process started. What only its owner can do fails
// with lab.ErrNotOwner. The caller ends with Lab.Close.
func Open(name string, o lab.Options) (*Cluster, error) {
	l, err := lab.Open(name, o)
	if err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	return newCluster(l, Options{}), nil
}

func newCluster(l *lab.Lab, o Options) *Cluster {
	own := func(role lab.Role) []*lab.Machine {
		return slices.DeleteFunc(l.Machines(role), func(m *lab.Machine) bool { return !strings.HasPrefix(m.Name(), o.Prefix) })
	}
	controls := own(RoleControl)
	return &Cluster{
		Lab: l, Control: controls[0], Nodes: own(RoleNode), controls: controls, guest: o.In != nil, number: o.Number,
		dir: filepath.Join(l.State().Dir(), "machines", controls[0].Name()), tools: o.Tools, ipv6: o.IPv6, log: o.Lab.Log,
	}
}

func (c *Cluster) build(ctx context.Context, o Options) error {
	began := time.Now()
	say := func(what string) {
		c.log.Info("cluster", "name", o.Name, "state", what, "after", time.Since(began).Round(time.Millisecond))
	}
	if err := c.startControl(ctx); err != nil {
		return err
	}
	say("the API is ready")
	for _, m := range c.controls {
		if err := c.route(-1, m); err != nil {
			return err
		}
	}
	// Nodes start at once: most of their time they wait.
	err := each(c.Nodes, func(i int, m *lab.Machine) error {
		if err := c.startNode(ctx, i, m); err != nil {
			return fmt.Errorf("start node %s: %w", m.Name(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.awaitNodes(ctx); err != nil {
		return err
	}
	say("the nodes are ready")
	pause, err := c.makePause()
	if err != nil {
		return err
	}
	for _, image := range append([]string{pause}, o.Images...) {
		if err := c.ImportImage(ctx, image); err != nil {
			return err
		}
	}
	say("the images are imported")
	return c.awaitAccount(ctx)
}

// Close stops the cluster and takes everything of it away. A cluster in a lab of others ends with that.
func (c *Cluster) Close(ctx context.Context) error {
	if c.guest {
		return nil
	}
	return c.Lab.Down(ctx)
}

// Kubeconfig is the file that makes its reader an administrator. Its server is reached
// from the lab's machines.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// Program is the path of one of the cluster's programs.
func (c *Cluster) Program(name string) string { return filepath.Join(c.tools, name) }

// ImportImage gives every node the image of a file, as `docker save` writes it.
func (c *Cluster) ImportImage(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("import image: %w", err)
	}
	return each(c.Nodes, func(_ int, m *lab.Machine) error {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("import image: %w", err)
		}
		defer func() { _ = file.Close() }()
		command := m.Command(ctx, "ctr", "--address", socketOf(m), "--namespace", "k8s.io", "images", "import", "--no-unpack=false", "-")
		command.Stdin = file
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("import image %s into node %s: %w: %s", path, m.Name(), err, lastLine(string(out)))
		}
		return nil
	})
}

// awaitNodes returns when every node says that it is ready.
func (c *Cluster) awaitNodes(ctx context.Context) error {
	return c.await(ctx, "the nodes to be ready", func() error {
		out, err := c.kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if err != nil {
			return err
		}
		for _, m := range c.Nodes {
			if !strings.Contains(out, m.Name()+"=True\n") {
				return fmt.Errorf("node %s is not ready (its log is %s)", m.Name(), nodeLog(c.Lab, m))
			}
		}
		return nil
	})
}

// awaitAccount returns when pods can be made: before, they are refused.
func (c *Cluster) awaitAccount(ctx context.Context) error {
	return c.await(ctx, "the default ServiceAccount", func() error {
		_, err := c.kubectl(ctx, "get", "serviceaccount", "default")
		return err
	})
}

// kubectl runs kubectl as the administrator.
func (c *Cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	argv := append([]string{c.Program("kubernetes"), "kubectl", "--kubeconfig", c.Kubeconfig(), "--cache-dir", filepath.Join(c.dir, "cache")}, args...)
	out, err := c.Control.Command(ctx, argv...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, lastLine(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// await tries until it gets nil, or ctx ends.
func (c *Cluster) await(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		for _, p := range c.Lab.State().Processes {
			if !p.Running() && p.Name != "" {
				return fmt.Errorf("wait for %s: %s on %s has ended (its log is %s): %s", what, p.Name, p.Machine, p.Log, lastOf(p.Log))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", what, ctx.Err(), err)
		case <-time.After(tick):
		}
	}
}

// each runs f for all machines at once and returns what went wrong.
func each(machines []*lab.Machine, f func(int, *lab.Machine) error) error {
	problems := make([]error, len(machines))
	var all sync.WaitGroup
	for i, m := range machines {
		all.Go(func() { problems[i] = f(i, m) })
	}
	all.Wait()
	return errors.Join(problems...)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// lastOf returns the last line of a file.
func lastOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-4096), io.SeekStart)
	}
	tail, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return lastLine(string(tail))
}
