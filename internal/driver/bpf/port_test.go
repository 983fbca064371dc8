package bpf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestInterfacesThatProgramsBelongTo, by default: lines of an interface, its index and kind,
// and what it holds; want is the used ones, then the others with the reason.
func TestInterfacesThatProgramsBelongTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		ports     []string
		addresses string // that are no prefixes' here: others of the machine; empty: all that are held
		endpoints string
		want      string
		problem   string
	}{
		{
			name:  "a Kubernetes node",
			ports: []string{"eth0 1 device 192.0.2.1/24 way", "docker0 2 bridge 172.17.0.1/16", "cni0 3 bridge 10.1.0.1/24", "veth1 4 veth master=3", "flannel.1 5 vxlan 10.1.0.0/32", "cali1 6 veth", "kube-ipvs0 7 dummy 10.96.0.1/32"},
			want:  "eth0 - cni0: no port of the bridge leads out of the machine, docker0: no port of the bridge leads out of the machine, flannel.1: a device of kind vxlan does not lead out of the machine by itself, kube-ipvs0: a device of kind dummy does not lead out of the machine by itself",
		},
		{
			name:  "two uplinks, one without a default route",
			ports: []string{"eth0 1 device 192.0.2.1/24 way", "eth1 2 device 198.51.100.1/24", "eth2 3 device"},
			want:  "eth0 eth1",
		},
		{
			name:  "a bond, a VLAN on it and a bridge on that",
			ports: []string{"eth0 1 device master=3", "eth1 2 device master=3", "bond0 3 bond", "bond0.7 4 vlan 192.0.2.1/24 parent=3 way", "bond0.8 5 vlan parent=3 master=6", "br0 6 bridge 198.51.100.1/24", "vnet0 7 tun master=6"},
			want:  "bond0.7 br0",
		},
		{
			name:  "what is on top of what leads nowhere",
			ports: []string{"eth0 1 device 192.0.2.1/24", "docker0 2 bridge", "mac0 3 macvlan 10.0.0.1/24 parent=2", "vm0 4 tun 10.0.1.1/24"},
			want:  "eth0 - mac0: it is on top of docker0: no port of the bridge leads out of the machine, vm0: a device of kind tun does not lead out of the machine by itself",
		},
		{
			name:  "a container",
			ports: []string{"eth0 1 veth 10.0.0.2/24 way", "net1 2 macvlan 192.0.2.1/24", "net2 3 veth 10.0.9.2/24"},
			want:  "eth0 net1 net2",
		},
		{
			name:  "a container with containers",
			ports: []string{"eth0 1 veth 10.0.0.2/24 way", "veth1 2 veth 10.244.0.1/32", "veth2 3 veth 10.244.0.1/32"},
			want:  "eth0 - veth1: it leads into a container, veth2: it leads into a container",
		},
		{
			name:  "veth beside real interfaces",
			ports: []string{"eth0 1 device 192.0.2.1/24", "veth1 2 veth 10.0.0.1/24"},
			want:  "eth0 - veth1: it leads into a container",
		},
		{
			name:  "a default route over what would not count",
			ports: []string{"eth0 1 device 192.0.2.1/24", "virbr0 2 bridge 10.0.0.1/24 way"},
			want:  "eth0 virbr0",
		},
		{
			name:  "a tunnel endpoint on what would not count",
			ports: []string{"eth0 1 device 192.0.2.1/24 way", "vx0 2 vxlan 10.0.0.1/24"}, endpoints: "10.0.0.1",
			want: "eth0 vx0",
		},
		{
			name:  "no Ethernet",
			ports: []string{"eth0 1 device 192.0.2.1/24 way", "wg0 2 wireguard 10.0.0.1/24 encap=none"},
			want:  "eth0 - wg0: it carries no Ethernet frames (none)",
		},
		{
			name:    "no Ethernet, and all there is",
			ports:   []string{"wg0 2 wireguard 10.0.0.1/24 encap=none way"},
			problem: "interface wg0: unsupported operation: it carries no Ethernet frames (none)",
		},
		{
			name:  "addresses that the machine does not report",
			ports: []string{"eth0 1 device 192.0.2.1/24", "docker0 2 bridge 172.17.0.1/16"}, addresses: "192.0.2.1",
			want: "eth0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var all []Port
			var addresses, endpoints []netip.Addr
			for _, line := range c.ports {
				p := Port{encap: "ether"}
				for i, w := range strings.Fields(line) {
					var err error
					switch key, value, _ := strings.Cut(w, "="); {
					case i == 0:
						p.Name = w
					case i == 1:
						_, err = fmt.Sscan(w, &p.Index)
					case i == 2:
						p.kind = w
					case key == "way":
						p.uplink = true
					case key == "encap":
						p.encap = value
					case key == "master":
						_, err = fmt.Sscan(value, &p.master)
					case key == "parent":
						_, err = fmt.Sscan(value, &p.parent)
					default:
						var x netip.Prefix
						x, err = netip.ParsePrefix(w)
						p.prefixes = append(p.prefixes, x)
						if c.addresses == "" {
							addresses = append(addresses, x.Addr())
						}
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				all = append(all, p)
			}
			if c.addresses != "" {
				addresses = append(addresses, netip.MustParseAddr(c.addresses))
			}
			if c.endpoints != "" {
				endpoints = append(endpoints, netip.MustParseAddr(c.endpoints))
			}
			found, left, errs := Choose(all, addresses, endpoints)
			var used, others []string
			for _, d := range found {
				used = append(used, d.Name)
			}
			for _, o := range left {
				others = append(others, o.Name+": "+o.Message)
			}
			slices.Sort(others)
			got := strings.Join(used, " ")
			if len(others) > 0 {
				got += " - " + strings.Join(others, ", ")
			}
			if got != c.want {
				t.Errorf("chosen:\n%s\nwant:\n%s", got, c.want)
			}
			if problem := fmt.Sprint(errs); c.problem != "" && problem != "["+c.problem+"]" || c.problem == "" && len(errs) > 0 {
				t.Errorf("problems: %s, want %q", problem, c.problem)
			}
		})
	}
}
