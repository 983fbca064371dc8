package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"fairlead.dev/lab"
)

// nodeScript is the first process of a node. Its variables are set by startNode.
//
//go:embed node.sh
var nodeScript string

// podNets are the networks of the pods of the node with that index.
func (c *Cluster) podNets(index int) []netip.Prefix {
	index += 10 * c.number
	a := firstNet.As4()
	a[2] += byte(index)
	nets := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4(a), 24)}
	if c.ipv6 {
		b := firstNet6.As16()
		b[7] += byte(index)
		nets = append(nets, netip.PrefixFrom(netip.AddrFrom16(b), 64))
	}
	return nets
}

// dirOf is the node's own directory.
func dirOf(m *lab.Machine) string { return filepath.Dir(socketOf(m)) }

// socketOf is containerd's socket on a node. It is in the node's own directory, which
// both sides of the node's mount namespace see.
func socketOf(m *lab.Machine) string {
	return filepath.Join(filepath.Dir(filepath.Dir(m.Namespace())), "machines", m.Name(), "containerd.sock")
}

func nodeLog(l *lab.Lab, m *lab.Machine) string {
	return filepath.Join(l.State().Dir(), "logs", m.Name()+"-node.log")
}

// startNode starts a node and returns when its containerd answers.
func (c *Cluster) startNode(ctx context.Context, index int, m *lab.Machine) error {
	if err := c.route(index, m); err != nil {
		return err
	}
	cgroup := "fairlead-" + c.Lab.Name() + "-" + m.Name()
	if err := c.Lab.MakeCgroup(cgroup); err != nil {
		return err
	}
	dir := dirOf(m)
	for name, text := range map[string]string{
		"containerd.toml":      containerdConfig(dir),
		"kubelet.yaml":         c.kubeletConfig(m, cgroup),
		"cni/10-pods.conflist": cniConfig(c.podNets(index)),
		"node.sh":              nodeScript,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	_, err := m.Start(ctx, lab.ProcessSpec{
		Name: "node",
		// When unshare dies, the first process of the node is killed, and with it all others.
		Argv: []string{
			"unshare", "--mount", "--propagation", "private", "--uts", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc",
			"bash", filepath.Join(dir, "node.sh"),
		},
		Env: append([]string{
			"NODE=" + m.Name(), "NODE_DIR=" + dir, "NODE_IP=" + m.Addr4().String(), "LABS=" + filepath.Dir(c.Lab.State().Dir()),
			"TOOLS=" + c.tools, "KUBECONFIG_NODE=" + filepath.Join(c.dir, "node-"+m.Name()+".kubeconfig"),
			"KUBECONFIG_PROXY=" + filepath.Join(c.dir, "proxy.kubeconfig"), "POD_NET=10.244.0.0/16",
		}, noProxies...),
	})
	if err != nil {
		return err
	}
	return c.await(ctx, "containerd", func() error {
		out, err := m.Command(ctx, "ctr", "--address", socketOf(m), "version").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, lastLine(string(out)))
		}
		return nil
	})
}

// KillContainer kills the first process of a container, as a container's status names it, at once.
func (c *Cluster) KillContainer(ctx context.Context, node *lab.Machine, id string) error {
	id = strings.TrimPrefix(id, "containerd://")
	out, err := node.Command(ctx, "ctr", "--address", socketOf(node), "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kill container %s on node %s: %w: %s", id, node.Name(), err, lastLine(string(out)))
	}
	return nil
}

// route lets a machine reach the pods of the other nodes, and gives everything else a
// way: the addresses of Services are nowhere, but a packet to one must be routed before
// kube-proxy turns it to a pod.
func (c *Cluster) route(index int, m *lab.Machine) error {
	h, err := m.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	for i, other := range c.Nodes {
		if i == index {
			continue
		}
		for _, pods := range c.podNets(i) {
			via := other.Addr4()
			if pods.Addr().Is6() {
				via = other.Addr6()
			}
			if err := addRoute(h, pods, via); err != nil {
				return err
			}
		}
	}
	if index < 0 { // no node: nothing there goes to Services
		return nil
	}
	if c.ipv6 {
		if err := addRoute(h, netip.PrefixFrom(netip.IPv6Unspecified(), 0), c.Control.Addr6()); err != nil {
			return err
		}
	}
	return addRoute(h, netip.PrefixFrom(netip.IPv4Unspecified(), 0), c.Control.Addr4())
}

// Route lets a machine that is not the cluster's reach its pods.
func (c *Cluster) Route(m *lab.Machine) error {
	h, err := m.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	for i, node := range c.Nodes {
		if err := addRoute(h, c.podNets(i)[0], node.Addr4()); err != nil {
			return err
		}
	}
	return nil
}

func addRoute(h *netlink.Handle, to netip.Prefix, via netip.Addr) error {
	dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
	if err := h.RouteAdd(&netlink.Route{Dst: dst, Gw: via.AsSlice()}); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("add a route to %s through %s: %w", to, via, err)
	}
	return nil
}

// containerdConfig keeps everything of containerd's in the node: /run and /var/lib are
// the node's own, and its socket is where the host finds it too.
func containerdConfig(dir string) string {
	return fmt.Sprintf(`version = 2
oom_score = 0
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/run/fairlead-tools/cni"
    conf_dir = %q
`, filepath.Join(dir, "containerd.sock"), pauseImage, filepath.Join(dir, "cni"))
}

// kubeletConfig keeps a kubelet from what belongs to a machine of its own: it evicts
// nothing, enforces nothing, and stays in the node's control group.
func (c *Cluster) kubeletConfig(m *lab.Machine, cgroup string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://%s
resolvConf: ""
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
evictionHard: {memory.available: 1Mi, nodefs.available: 0%%, imagefs.available: 0%%, nodefs.inodesFree: 0%%}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 5s
volumePluginDir: /run/fairlead-volumes
`, m.Addr4(), filepath.Join(c.dir, "pki", "ca.crt"), cgroup, socketOf(m))
}

// cniConfig has a bridge on the node with an address of each pod's network.
func cniConfig(pods []netip.Prefix) string {
	var ranges, routes []string
	for _, p := range pods {
		ranges = append(ranges, fmt.Sprintf(`[{"subnet": %q}]`, p))
		everything, _ := p.Addr().Prefix(0)
		routes = append(routes, fmt.Sprintf(`{"dst": %q}`, everything))
	}
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [%s], "routes": [%s]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, strings.Join(ranges, ", "), strings.Join(routes, ", "))
}
