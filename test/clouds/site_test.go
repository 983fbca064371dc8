package clouds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	sourceapi "fairlead.dev/internal/source/api"
	"fairlead.dev/lab"
	"fairlead.dev/lab/cluster"
	"fairlead.dev/lab/openstack"
	"fairlead.dev/lab/rig"
)

const (
	root      = "../.."
	namespace = "team01"
	podImage  = "localhost/pod:1"
)

// site is a lab with a plane, an edge, a client, two clusters and a cloud whose machines are addresses of the machine "vms".
type site struct {
	*rig.Rig
	t      *testing.T
	plane  *rig.Plane
	edge   *lab.Machine
	client *lab.Machine
	vms    *lab.Machine
	api    client.Client // the plane's
	clouds map[string]*kubeCloud
	cloud  *cloud
}

// kubeCloud is a cluster that is an upstream.
type kubeCloud struct {
	*cluster.Cluster
	name string
	api  kubernetes.Interface
}

// newSite brings up everything but the upstreams' services.
func newSite(ctx context.Context, t *testing.T) *site {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	if err := cluster.Supported(); err != nil {
		t.Fatal(err)
	}
	if _, err := openstack.Find(); err != nil {
		t.Skip(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	options := map[string]cluster.Options{}
	machines := []lab.MachineSpec{
		{Name: "plane", Role: lab.RolePlane},
		{Name: "edge-1", Role: lab.RoleEdge},
		{Name: "client", Role: lab.RoleClient},
		{Name: "vms", Role: lab.RoleBackends, Addresses: 3},
	}
	for i, name := range []string{"up01", "up02"} {
		o := cluster.Options{Name: name, Prefix: name + "-", Number: i, Nodes: 1, Tools: tools(t), Images: []string{image(t)}}
		o.Lab.Log = log
		machines = append(machines, o.MachineSpecs()...)
		options[name] = o
	}
	l, err := lab.Up(ctx, lab.Topology{Name: fmt.Sprintf("clouds-%d", os.Getpid()), Machines: machines}, lab.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{
		t: t, Rig: &rig.Rig{Lab: l, Binary: program(t, "FAIRLEAD_BINARY", "bin/fairlead"), Envoy: program(t, "FAIRLEAD_ENVOY", ".tools/envoy"), Now: time.Now},
		edge: l.Machine("edge-1"), client: l.Machine("client"), vms: l.Machine("vms"), clouds: map[string]*kubeCloud{},
	}
	s.Progress = func(what string, waited time.Duration, last error) {
		log.Info("waiting", "for", what, "since", waited.Round(time.Second), "last", last)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.tell()
		}
		state := l.State()
		if err := l.Down(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		if left, err := lab.Leftovers(state); err != nil || len(left) > 0 {
			t.Errorf("left over: %s (%v)", strings.Join(left, ", "), err)
		}
	})
	if s.Kubectl, err = rig.FindKubectl(s.Binary); err != nil {
		t.Fatal(err)
	}
	s.together(
		func() error { return s.startPlane(ctx) },
		func() error { return s.startCloud(ctx) },
		func() error { return s.startCluster(ctx, options["up01"]) },
		func() error { return s.startCluster(ctx, options["up02"]) },
	)
	for _, k := range s.clouds {
		s.must(k.Route(s.edge))
	}
	return s
}

// together does what can be done at once.
func (s *site) together(steps ...func() error) {
	s.t.Helper()
	failed := make([]error, len(steps))
	var all sync.WaitGroup
	for i, step := range steps {
		all.Go(func() { failed[i] = step() })
	}
	all.Wait()
	s.must(failed...)
}

func (s *site) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

func tools(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("FAIRLEAD_CLUSTER"); named != "" {
		return named
	}
	return program(t, "", ".tools/cluster")
}

// program is the path of a program that a variable names, or of one of the module's.
func program(t *testing.T, variable, path string) string {
	t.Helper()
	if named := os.Getenv(variable); variable != "" && named != "" {
		return named
	}
	path, err := filepath.Abs(filepath.Join(root, path))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("make build and tools/setup.sh make it: %v", err)
	}
	return path
}

// image is a file with the image of pods: this test binary.
func image(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod.tar")
	own, err := os.Executable()
	if err == nil {
		err = cluster.Image{Names: []string{podImage}, Program: own}.Write(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *site) startPlane(ctx context.Context) (err error) {
	s.plane, err = s.StartPlane(ctx, s.Lab.Machine("plane"), rig.PlaneOptions{Args: []string{"--upstream-allow", "plain-http,loopback"}})
	if err != nil {
		return err
	}
	config, err := restConfig(s.plane.Kubeconfig(), s.plane.Machine)
	if err != nil {
		return err
	}
	if s.api, err = sourceapi.NewClient(config); err != nil {
		return err
	}
	if err := s.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	agent, err := s.StartAgent(ctx, s.edge, s.plane, "--envoy-threads", "1")
	if err != nil {
		return err
	}
	return agent.AwaitReady(ctx)
}

func restConfig(kubeconfig string, m *lab.Machine) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Dial, config.QPS = m.Dial, -1
	return config, nil
}

var starting sync.Mutex // guards site.clouds

func (s *site) startCluster(ctx context.Context, o cluster.Options) error {
	o.In = s.Lab
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	config, err := restConfig(c.Kubeconfig(), c.Control)
	if err != nil {
		return err
	}
	k := &kubeCloud{Cluster: c, name: o.Name}
	if k.api, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	starting.Lock()
	s.clouds[o.Name] = k
	starting.Unlock()
	return k.deploy(ctx, 2)
}

func (s *site) startCloud(ctx context.Context) error {
	var members []string
	started, err := s.StartBackends(ctx, s.vms, s.vms.Addrs4(), port)
	if err != nil {
		return err
	}
	for _, b := range started {
		members = append(members, b.Address.Addr().String())
	}
	dir, err := s.vms.Dir("cloud")
	if err != nil {
		return err
	}
	c, err := openstack.Start(ctx, openstack.Config{Dir: dir})
	if err != nil {
		return err
	}
	s.t.Cleanup(c.Stop)
	// Its APIs are on the host's loopback, and have the same addresses on the plane's.
	for _, address := range []string{c.AuthURL, c.LoadBalancerURL} {
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		l, err := s.Lab.Machine("plane").Listen(ctx, "tcp4", u.Host)
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { _ = l.Close() })
		go relay(l, u.Host)
	}
	s.cloud, err = newCloud(ctx, c, members)
	return err
}

// relay passes connections on to an address of the host's.
func relay(l net.Listener, address string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			up, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer up.Close()
			go func() {
				_, _ = io.Copy(up, conn)
				_ = up.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(conn, up)
		}()
	}
}

// follow creates an Upstream.
func (s *site) follow(ctx context.Context, name, key string, credentials []byte, spec v1alpha1.UpstreamSpec) {
	s.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}, Data: map[string][]byte{key: credentials}}
	spec.Namespaces.Include = []string{namespace}
	s.must(s.api.Create(ctx, secret), s.api.Create(ctx, &v1alpha1.Upstream{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}))
}

func (s *site) followAll(ctx context.Context) {
	s.t.Helper()
	for name, k := range s.clouds {
		kubeconfig, err := os.ReadFile(k.Kubeconfig())
		s.must(err)
		s.follow(ctx, name, snapshot.KubeconfigKey, kubeconfig, v1alpha1.UpstreamSpec{Kubernetes: &v1alpha1.KubernetesUpstream{Secret: name}})
	}
	s.follow(ctx, "up03", snapshot.CloudsKey, s.cloud.CloudsYAML(), v1alpha1.UpstreamSpec{OpenStack: &v1alpha1.OpenStackUpstream{Secret: "up03"}})
}

// tell logs the ends of all logs of a site that does not work.
func (s *site) tell() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), time.Minute)
	defer cancel()
	if s.plane != nil {
		for _, args := range [][]string{{"get", "upstreams,svc,endpointslices", "-A", "-o", "wide"}, {"get", "upstreams", "-o", "yaml"}, {"get", "ingressroutes", "-A", "-o", "yaml"}} {
			out, err := s.plane.Kubectl(ctx, "", args...)
			s.t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	_ = filepath.WalkDir(filepath.Join(s.Lab.State().Dir(), "logs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		s.t.Logf("%s: %v\n%s", filepath.Base(path), err, text[max(0, len(text)-2000):])
		return nil
	})
}
