// Package packages tries the Debian packages as people use them: built, installed in a Debian
// with a real systemd, upgraded under load, removed and purged.
package packages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const manifests = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  gatewayClassName: fairlead
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: default}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {ports: [{name: http, port: 80, targetPort: 3000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 3000}]
endpoints: [{addresses: [10.9.0.1]}]
`

const root = "../.."

// programs are what goes into the packages.
type programs struct{ binary, envoy, kubectl string }

func findPrograms(t *testing.T) (p programs) {
	t.Helper()
	for _, f := range []struct {
		path       *string
		env, usual string
	}{{&p.binary, "FAIRLEAD_BINARY", "bin/fairlead"}, {&p.envoy, "FAIRLEAD_ENVOY", ".tools/envoy"}, {&p.kubectl, "FAIRLEAD_KUBECTL", "bin/kubectl"}} {
		if *f.path = os.Getenv(f.env); *f.path == "" {
			*f.path = filepath.Join(root, f.usual)
		}
		var err error
		if *f.path, err = filepath.Abs(*f.path); err == nil {
			_, err = os.Stat(*f.path)
		}
		if err != nil {
			t.Fatalf("%v (make build && tools/setup.sh demo)", err)
		}
	}
	return p
}

// build builds the packages of a version from a checkout.
func build(t *testing.T, checkout string, p programs, version, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "tools/packages.sh", p.binary, p.envoy, out)
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000", "LEVEL=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the packages: %v: %s", err, text)
	}
}

// Installed, configured, upgraded and put back under load, removed, installed again and purged.
func TestPackages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("machines are made of namespaces: needs root")
	}
	debian, err := filepath.Abs(filepath.Join(root, ".tools", "debian"))
	if err == nil {
		debian, err = filepath.EvalSymlinks(debian)
	}
	if err != nil {
		t.Fatalf("%v (tools/setup.sh debian)", err)
	}
	p, host := findPrograms(t), t.TempDir()
	build(t, root, p, "0.1.0~1", filepath.Join(host, "old"))
	build(t, root, p, "0.1.0~2", filepath.Join(host, "new"))
	if err := os.WriteFile(filepath.Join(host, "manifests.yaml"), []byte(manifests), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(p.kubectl, filepath.Join(host, "kubectl")); err != nil {
		if out, err := exec.CommandContext(t.Context(), "cp", p.kubectl, host).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	m := newMachine(t, debian, host)
	before := m.tree()

	m.run("sh", "-c", "dpkg -i /host/old/*.deb")
	for _, unit := range []string{"fairlead-agent", "fairlead-plane"} {
		if out, err := m.try("systemctl", "is-active", unit); err == nil {
			t.Errorf("%s is %s without settings", unit, out)
		}
	}
	if out, err := m.try("setpriv", "--reuid=65534", "--clear-groups", "fairlead", "install", "plane"); err == nil || !strings.Contains(out, "run this as root") {
		t.Errorf("install by nobody: %v: %s", err, out)
	}
	m.documents()
	m.serve()
	m.upgrade()
	m.remove()
	m.purge(before)
}

// documents: man pages and completions are where a machine looks for them.
func (m *machine) documents() {
	m.t.Helper()
	for _, path := range []string{
		"/usr/share/man/man1/fairlead-agent.1.gz", "/usr/share/man/man1/fairlead-install-agent.1.gz",
		"/usr/share/zsh/vendor-completions/_fairlead", "/usr/share/fish/vendor_completions.d/fairlead.fish",
		"/usr/share/doc/fairlead/sbom.cdx.json", "/usr/share/doc/fairlead-envoy/sbom.cdx.json",
	} {
		m.run("test", "-s", path)
	}
	if out := m.run("bash", "-c", `. /usr/share/bash-completion/completions/fairlead && type __start_fairlead`); !strings.Contains(out, "function") {
		m.t.Errorf("bash completes nothing: %s", out)
	}
	m.run("systemd-analyze", "verify", "--man=no", "fairlead-agent.service", "fairlead-plane.service")
}

// serve has plane and agent run, and carries a request.
func (m *machine) serve() {
	m.t.Helper()
	m.run("fairlead", "install", "plane", "--advertise-address", "10.9.0.1", "--now")
	m.eventually("the plane takes manifests", func() error {
		_, err := m.try("/host/kubectl", "--kubeconfig=/var/lib/fairlead/plane/admin.kubeconfig", "--cache-dir=/run/kubectl", "apply", "--server-side", "-f", "/host/manifests.yaml")
		return err
	})
	m.run("systemd-run", "--quiet", "--unit=web", "fairlead", "lab", "backend", "--serve", "blue=10.9.0.1:3000")
	m.run("sh", "-ec", "fairlead token create --machine edge-1 | fairlead install agent --plane 10.9.0.1:7443 --name edge-1 --token-file /dev/stdin --now")
	m.answers()
	agent := m.pid()
	if out := m.run("fairlead", "install", "agent", "--plane", "10.9.0.1:7443", "--name", "edge-1", "--now"); strings.Contains(out, "written") || m.pid() != agent {
		m.t.Errorf("the same settings changed something: %s", out)
	}
}

func (m *machine) answers() {
	m.t.Helper()
	m.eventually("the route answers", func() error {
		out, err := m.try("curl", "-sS", "-m", "5", "http://10.9.0.1/")
		if err == nil && out != "blue" {
			err = fmt.Errorf("%w: %s", errNot, out)
		}
		return err
	})
}

// pid is the agent's process.
func (m *machine) pid() string {
	m.t.Helper()
	return m.run("systemctl", "show", "--value", "-p", "MainPID", "fairlead-agent")
}

// upgrade installs another version and goes back, while requests go on.
func (m *machine) upgrade() {
	m.t.Helper()
	settings := m.run("sh", "-c", "cat /etc/fairlead/*.env")
	m.run("mkdir", "-p", "/etc/systemd/system/fairlead-agent.service.d")
	m.run("sh", "-c", "printf '[Service]\nNice=-1\n' >/etc/systemd/system/fairlead-agent.service.d/mine.conf")
	envoy := m.run("pgrep", "-x", "envoy")
	load := m.command(m.t.Context(), "sh", "-c", `while [ ! -e /run/stop ]; do curl -s -o /dev/null -m 20 -w '%{http_code}\n' http://10.9.0.1/; done >/run/codes`)
	if err := load.Start(); err != nil {
		m.t.Fatal(err)
	}
	for _, version := range []string{"new", "old"} {
		agent := m.pid()
		m.run("sh", "-c", "dpkg -i /host/"+version+"/*.deb")
		if m.pid() == agent {
			m.t.Errorf("to %s: the agent was not started anew", version)
		}
		m.eventually("the agent is ready", func() error {
			_, err := m.try("curl", "-sSf", "http://127.0.0.1:7081/readyz")
			return err
		})
	}
	m.run("touch", "/run/stop")
	if err := load.Wait(); err != nil {
		m.t.Error(err)
	}
	codes := strings.Fields(m.run("cat", "/run/codes"))
	failed := slices.DeleteFunc(slices.Clone(codes), func(c string) bool { return c == "200" })
	if len(codes) < 10 || len(failed) > 0 {
		m.t.Errorf("of %d requests while packages were replaced %d failed: %v", len(codes), len(failed), failed)
	}
	m.t.Logf("packages were replaced twice: %d requests, %d failed", len(codes), len(failed))
	if now := m.run("pgrep", "-x", "envoy"); now != envoy {
		m.t.Errorf("Envoy was process %s and is %s", envoy, now)
	}
	if now := m.run("sh", "-c", "cat /etc/fairlead/*.env"); now != settings {
		m.t.Errorf("the settings were %s and are %s", settings, now)
	}
}

// remove ends the agent with its Envoy and keeps what installing it again needs.
func (m *machine) remove() {
	m.t.Helper()
	m.run("dpkg", "--remove", "fairlead-agent")
	if out, err := m.try("pgrep", "-x", "envoy"); err == nil {
		m.t.Errorf("Envoy runs on as %s", out)
	}
	m.run("sh", "-c", "dpkg -i /host/old/fairlead-agent_*.deb")
	m.answers()
}

// purge leaves nothing but what somebody else made.
func (m *machine) purge(before []string) {
	m.t.Helper()
	m.run("touch", "/etc/fairlead/mine")
	m.run("systemctl", "stop", "web")
	m.run("dpkg", "--purge", "fairlead-agent", "fairlead-plane", "fairlead-envoy", "fairlead")
	mine := []string{"etc/fairlead", "etc/fairlead/mine", "etc/systemd/system/fairlead-agent.service.d", "etc/systemd/system/fairlead-agent.service.d/mine.conf"}
	for _, path := range m.tree() {
		if _, was := slices.BinarySearch(before, path); !was && !slices.Contains(mine, path) {
			m.t.Errorf("it left /%s", path)
		}
	}
	for _, path := range mine {
		m.run("test", "-e", "/"+path)
	}
	for _, process := range []string{"fairlead", "envoy"} {
		if out, err := m.try("pgrep", "-x", process); err == nil {
			m.t.Errorf("%s runs on as %s", process, out)
		}
	}
	for _, database := range []string{"passwd", "group"} {
		if out, err := m.try("getent", database, "fairlead-envoy"); err == nil {
			m.t.Errorf("the account is left: %s", out)
		}
	}
}

// tree is every path of the machine that packages could have made.
func (m *machine) tree() []string {
	m.t.Helper()
	out := m.run("sh", "-c", `cd / && find etc usr var run opt root home -xdev \( -path var/log/journal -o -path var/lib/dpkg/info -o -path run/systemd -o -path run/kubectl -o -path run/codes -o -path run/stop \) -prune -o -print`)
	paths := strings.Split(out, "\n")
	slices.Sort(paths)
	return paths
}

// Equal programs give equal packages and SBOMs, wherever the checkout is.
func TestPackagesAreReproducible(t *testing.T) {
	p := findPrograms(t)
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	// Another directory of another name, with other times.
	there := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	copied := exec.CommandContext(t.Context(), "cp", "-r", "LICENSE", "go.mod", "go.sum", "deploy", "tools", there)
	copied.Dir = here
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Programs first, as `make release` builds them: a small one stands for ours, which takes minutes.
	makefile, err := os.ReadFile(filepath.Join(here, "Makefile"))
	flags := regexp.MustCompile(`go build -v (.*) -ldflags=.* -o bin/release/fairlead`).FindSubmatch(makefile)
	if err != nil || flags == nil {
		t.Fatalf("%v: the Makefile does not build bin/release/fairlead", err)
	}
	var built [2][]byte
	for i, dir := range []string{here, there} {
		out := filepath.Join(t.TempDir(), "program")
		cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, strings.Fields(string(flags[1]))...), "-o", out, "./tools/sbom/write")...)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if built[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(built[0], built[1]) {
		t.Error("a program differs between directories")
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	build(t, here, p, "0.1.0~1", dirs[0])
	build(t, there, p, "0.1.0~1", dirs[1])
	names, err := os.ReadDir(dirs[0])
	if err != nil || len(names) != 6 {
		t.Fatalf("there are %v, %v; want four packages and two SBOMs", names, err)
	}
	for _, name := range names {
		var texts [2]string
		for i, dir := range dirs {
			text, err := os.ReadFile(filepath.Join(dir, name.Name()))
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(text)
		}
		if texts[0] != texts[1] {
			t.Errorf("%s differs between directories", name.Name())
		}
	}
}
