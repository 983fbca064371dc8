package e2e

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"fairlead.dev/lab/rig"
)

// TestAskingAboutFrontends asks, as somebody does who knows a name or an address, about what
// is balanced: before there is anything, with every form of a name, with slips, and with
// what may not be done.
func TestAskingAboutFrontends(t *testing.T) {
	s := newLab(t, "asking", plane, edge1, os1, client)
	if err := s.start(t.Context(), rig.PlaneOptions{}); err != nil {
		t.Fatal(err)
	}
	type asking struct {
		args string
		code int
		want []string // in what is printed, or in the error
		not  []string
	}
	admin := " --kubeconfig " + s.plane.Kubeconfig()
	ask := func(list ...asking) {
		t.Helper()
		for _, a := range list {
			argv := strings.Fields(a.args)
			if argv[0] == "__complete" {
				argv = append(argv, "")
			}
			code, out, errs := s.run(t, s.plane.Machine, argv...)
			all := out + errs
			t.Logf("fairlead %s -> %d\n%s", a.args, code, all)
			if code != a.code {
				t.Errorf("fairlead %s ends with %d, want %d:\n%s", a.args, code, a.code, all)
			}
			for _, want := range a.want {
				if !strings.Contains(all, want) {
					t.Errorf("fairlead %s does not say %q:\n%s", a.args, want, all)
				}
			}
			for _, not := range a.not {
				if strings.Contains(all, not) {
					t.Errorf("fairlead %s says %q:\n%s", a.args, not, all)
				}
			}
			if strings.HasSuffix(a.args, "-o json") && code == 0 && !json.Valid([]byte(out)) {
				t.Errorf("fairlead %s prints no JSON:\n%s", a.args, out)
			}
		}
	}
	// Nothing is there.
	ask(
		asking{args: "vips", want: []string{"no AddressPool"}},
		asking{args: "vips -o json", want: []string{"[]"}},
		asking{args: "backends", want: []string{"no backend", "`fairlead routes` shows the routes of proxies"}},
		asking{args: "backends -o json", want: []string{"[]"}},
		asking{args: "backends web", code: 1, want: []string{"no frontend is balanced in the kernel"}, not: []string{"no plane answers"}},
		asking{args: "flows", want: []string{"no flow at edge-1: no frontend has a connection"}},
		asking{args: "flows --client 198.51.100.7", want: []string{"no such flow at edge-1"}},
		asking{args: "flows -o json", want: []string{`"flows": []`}},
	)
	edge := s.Lab.Machine(edge1.Name).Addr4().As4()
	edge[2], edge[3] = 200, 16
	vip := netip.AddrFrom4(edge).String()
	const vip6 = "fd77::200:16"
	backends := s.cluster(os1.Name)
	s.namespace(t, "team")
	s.apply(t, rig.PoolManifest("flat", []string{vip + "/32", vip6 + "/128"}, "announce: L2", "assign: OnRequest"),
		strings.Replace(service("team", "web", backends...), "  clusterIP: None\n", "  type: LoadBalancer\n  loadBalancerClass: fairlead.dev/l4\n  allocateLoadBalancerNodePorts: false\n  ipFamilies: [IPv4, IPv6]\n  ipFamilyPolicy: RequireDualStack\n", 1))
	s.kubectl(t, "annotate", "service", "-n", "team", "web", "fairlead.dev/address-pool=flat")
	s.awaitAnswerOf(t, "the VIP", request{at: netip.MustParseAddr(vip), host: "web"}, 200)
	for _, name := range []string{"tcp://" + vip + ":80", vip + ":80", vip, "team/web", "web -n team"} {
		ask(asking{args: "backends " + name, want: []string{"Service team/web"}})
	}
	for _, name := range []string{"tcp://[" + vip6 + "]:80", "[" + vip6 + "]:80", vip6, "[" + vip6 + "]"} {
		ask(asking{args: "backends " + name, want: []string{"has no backend"}}) // its endpoints are IPv4
	}
	first := backends[0].Address.Addr().String()
	ask(
		asking{args: "vips", want: []string{vip, "Service team/web", "tcp://[" + vip6 + "]:80"}},
		asking{args: "backends team/wbe", code: 1, want: []string{`no frontend matches "team/wbe"`, "did you mean team/web?"}, not: []string{"no plane answers"}},
		asking{args: "backends tcp://" + vip + ":81", code: 1, want: []string{"did you mean tcp://" + vip + ":80"}},
		asking{args: "backends www.example.com", code: 1, want: []string{"no frontend matches", "a VIP"}},
		asking{args: "flows --machine edge1", code: 1, want: []string{"did you mean edge-1?"}},
		asking{args: "flows --frontend " + vip, code: 2, want: []string{"want tcp://VIP:PORT"}},
		asking{args: "flows --client nowhere", code: 2, want: []string{"an address or a CIDR"}},
		asking{args: "flows --client [" + vip6 + "]"},
		asking{args: "explain tcp://" + vip + ":80 --from 198.51.100.7:40000", want: []string{"10.77."}},
		asking{args: "explain tcp://" + vip + ":81 --from 198.51.100.7:40000"},
		asking{args: "explain tcp://www.example.com:80 --from 198.51.100.7:40000", code: 2, want: []string{"names are not looked up"}},
		asking{args: "explain tcp://" + vip6 + ":80 --from [fd77::9]:40000", code: 2, want: []string{"in brackets"}},
		asking{args: "explain tcp://" + vip + " --from 198.51.100.7:40000", code: 2, want: []string{"the port is missing"}},
		asking{args: "explain tcp://[" + vip6 + "]:80 --from [fd77::9]:40000"},
		asking{args: "drain edge1" + admin, code: 1, want: []string{"there is no Machine edge1", "did you mean edge-1?"}},
		asking{args: "drain team/web/203.0.113.9 --no-wait" + admin, code: 1, want: []string{"there is no such backend", first}},
		asking{args: "drain team/wbe/" + first + " --no-wait" + admin, code: 1, want: []string{"there is no Service team/wbe"}},
		asking{args: "drain team/web/os1-a --no-wait" + admin, code: 2, want: []string{"is no address", "names are not looked up"}},
		asking{args: "drain team/web/" + first + " --timeout 20s" + admin, want: []string{"takes nothing new"}},
		asking{args: "backends team/web -o wide", want: []string{"draining"}},
		asking{args: "undrain team/web/" + first + admin, want: []string{"accepts new flows again"}},
		asking{args: "backends --plane-console 127.0.0.1:1", code: 1, want: []string{"no plane answers"}},
		asking{args: "vips --plane-console 127.0.0.1:1", code: 1, want: []string{"no plane answers"}},
		asking{args: "drops --run-dir /nowhere", code: 1, want: []string{"does an agent run on this machine"}},
		asking{args: "drops --reason no-backends", code: 2, want: []string{"did you mean no-backend?"}},
		asking{args: "__complete backends", want: []string{"tcp://" + vip + ":80", "team/web"}},
		asking{args: "__complete flows --machine", want: []string{"edge-1"}},
		asking{args: "__complete drain", want: []string{"edge-1"}},
	)
	// Somebody who may look at Services and not change them.
	s.apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: looker, namespace: team}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: looker, namespace: team}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: [{kind: ServiceAccount, name: looker}]\n")
	token := strings.TrimSpace(s.kubectl(t, "create", "token", "-n", "team", "looker"))
	raw, err := os.ReadFile(s.plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	for i, l := range lines {
		if at := strings.Index(l, "client-certificate-data:"); at >= 0 {
			lines[i] = l[:at] + "token: " + token
		}
		if strings.Contains(l, "client-key-data:") {
			lines[i] = ""
		}
	}
	looker := t.TempDir() + "/looker.kubeconfig"
	if err := os.WriteFile(looker, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	ask(asking{args: "drain team/web/" + first + " --no-wait --kubeconfig " + looker, code: 1, want: []string{"you may not do that"}})
	// It is the only machine that announces the VIP.
	s.awaitAnswerOf(t, "the VIP", request{at: netip.MustParseAddr(vip), host: "web"}, 200)
	ask(
		asking{args: "drain edge-1 --no-wait" + admin, want: []string{"warning: no other machine announces " + vip + " (Service team/web)", "machine edge-1 is cordoned"}},
		asking{args: "undrain edge-1" + admin, want: []string{"accepts new flows again"}},
	)
}
