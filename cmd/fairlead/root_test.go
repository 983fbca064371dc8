package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// execute runs a command line and returns what it printed on standard output.
func execute(args ...string) (string, error) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

// Exit status 2 and a hint belong to every command line that cannot be understood.
func TestWrongCommandLines(t *testing.T) {
	for _, c := range []struct{ line, command, says string }{
		{"nonsense", "fairlead", `unknown command "nonsense"`},
		{"statsu", "fairlead", "did you mean status?"},
		{"vip", "fairlead", "; did you mean vips?"},
		{"machines", "fairlead", "did you mean status?"},
		{"cordon", "fairlead", "did you mean drain?"},
		{"token crate", "fairlead token", "did you mean create?"},
		{"lab nonsense", "fairlead lab", `unknown command "nonsense"`},
		{"completion nonsense", "fairlead completion", `unknown command "nonsense"`},
		{"up more", "fairlead up", `"more": fairlead up takes no arguments`},
		{"vips 203.0.113.16", "fairlead vips", "takes no arguments"},
		{"explain", "fairlead explain", "want fairlead explain URL"},
		{"up --nonsense", "fairlead up", "--nonsense"},
		{"up --on-stop never", "fairlead up", "want leave or drain"},
		{"up --drain-time -5s", "fairlead up", "--drain-time -5s"},
		{"up --envoy-threads -1", "fairlead up", "--envoy-threads -1"},
		{"agent --plane 192.0.2.1:7443 --envoy-user no-such-account", "fairlead agent", "--envoy-user: \"no-such-account\" is not an account"},
		{"up --envoy-memory 1Mi", "fairlead up", "64Mi or more"},
		{"up --envoy-memory much", "fairlead up", "--envoy-memory \"much\""},
		{"up --envoy-connections -1", "fairlead up", "--envoy-connections -1"},
		{"up --name A_B", "fairlead up", "(--name"},
		{"agent --plane 192.0.2.1:7443 --name A_B", "fairlead agent", "lower-case"},
		{"up --ingressroute-port 7443", "fairlead up", "--agent-port and --ingressroute-port are both 7443"},
		{"up --ingressroute-tls-port 7443", "fairlead up", "--agent-port and --ingressroute-tls-port are both 7443"},
		{"up --ingressroute-port 7081", "fairlead up", "the agents' console and --ingressroute-port are both 7081"},
		{"up --api-port 80", "fairlead up", "--api-port and --ingressroute-port are both 80;"},
		{"up --console-address 127.0.0.1:443", "fairlead up", "--console-address and --ingressroute-tls-port are both 443;"},
		{"up --ingressroute-port 443", "fairlead up", "are both 443"},
		{"up --api-port 7443", "fairlead up", "--api-port and --agent-port are both 7443"},
		{"up --machine-ttl 0s", "fairlead up", "--machine-ttl 0s"},
		{"plane --etcd-cafile a", "fairlead plane", "--etcd-servers"},
		{"up --bind-address here", "fairlead up", "want an IP address"},
		{"plane --kubeconfig a --etcd-servers b", "fairlead plane", "[kubeconfig in-cluster etcd-servers]"},
		{"plane --advertise-address here", "fairlead plane", "want an IP address"},
		{"agent", "fairlead agent", `"plane" not set`},
		{"agent --plane 192.0.2.1", "fairlead agent", "want host:port"},
		{"agent --plane :7443", "fairlead agent", "want host:port"},
		{"top route", "fairlead top", `"route": want routes, hosts, namespaces, listeners, upstreams, frontends or backends; did you mean routes?`},
		{"top --sort error", "fairlead top", `--sort "error": want rate, errors, latency or name; did you mean errors?`},
		{"top upstreams -n shop", "fairlead top", "upstreams are of no namespace"},
		{"top --limit -1", "fairlead top", "--limit -1"},
		{"top -n A_B", "fairlead top", `-n "A_B": want the name of a namespace`},
		{"tap -n a/b", "fairlead tap", `-n "a/b"`},
		{"tap --limit -1", "fairlead tap", "--limit -1: want a number of requests"},
		{"tap --status 9", "fairlead tap", `--status "9": want a status`},
		{"tap --slower-than -1s", "fairlead tap", "--slower-than -1s: want"},
		{"tap --flows --client x", "fairlead tap", `--client "x": want`},
		{"routes http://a.test/", "fairlead routes", `HOST "http://a.test/": want a host name`},
		{"routes -n a/b", "fairlead routes", `-n "a/b"`},
		{"changes -n a/b", "fairlead changes", `-n "a/b"`},
		{"changes --limit -1", "fairlead changes", "--limit -1"},
		{"changes --since -1h", "fairlead changes", "--since -1h"},
		{"dashboards --write /nowhere --runbooks javascript:alert(1)", "fairlead dashboards", `--runbooks "javascript:alert(1)": want a URL with http or https, or a path`},
		{"dashboards more", "fairlead dashboards", "takes no arguments"},
		{"status -o wide", "fairlead status", "want text, json or yaml"},
		{"status --plane-console ::1:80", "fairlead status", "want a URL or host:port"},
		{"support-bundle --agent-console http://", "fairlead support-bundle", "--agent-console"},
		{"lab exec", "fairlead lab exec", "want fairlead lab exec [--name LAB] MACHINE [--] COMMAND [ARG...]"},
		{"lab exec client", "fairlead lab exec", "want fairlead lab exec"},
		{"lab up -o wide", "fairlead lab up", "want text, json or yaml"},
		{"help nonsense", "fairlead help", `unknown command "nonsense"`},
		{"help token crate", "fairlead help", "did you mean create?"},
		{"status --log-level loud", "fairlead status", "want debug, info, warn or error"},
		{"--log-format xml version", "fairlead version", "want text or json"},
		{"translate", "fairlead translate", `"filename" not set`},
		{"translate --filename=", "fairlead translate", "want a file, a directory"},
		{"backup", "fairlead backup", `"file" not set`},
		{"restore", "fairlead restore", `"file" not set`},
		{"restore --file a --authority old", "fairlead restore", "want backup, present or new"},
		{"authority rotat", "fairlead authority", "did you mean rotate?"},
		{"authority retire edge-1", "fairlead authority retire", "takes no arguments"},
		{"token create", "fairlead token create", `"machine" not set`},
		{"token create --machine a --ttl 0s", "fairlead token create", "--ttl 0s"},
		{"token revoke", "fairlead token revoke", "want fairlead token revoke"},
	} {
		out, err := execute(strings.Fields(c.line)...)
		var u usageError
		switch {
		case !errors.As(err, &u):
			t.Errorf("fairlead %s: %v, want a usage error", c.line, err)
		case u.command != c.command:
			t.Errorf("fairlead %s: is said of %q, want %q", c.line, u.command, c.command)
		case !strings.Contains(err.Error(), c.says):
			t.Errorf("fairlead %s: %q does not say %q", c.line, err, c.says)
		case out != "":
			t.Errorf("fairlead %s: prints %q besides", c.line, out)
		}
	}
}

// Asking for help is no mistake, and shows only lines that can be run.
func TestHelp(t *testing.T) {
	for _, line := range []string{"", "--help", "help", "help token create", "lab", "token", "completion", "up --help", "agent --help", "translate -h", "--version"} {
		out, err := execute(strings.Fields(line)...)
		if err != nil || out == "" {
			t.Errorf("fairlead %s: %v, prints %d bytes", line, err, len(out))
		}
	}
	out, err := execute("token")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "fairlead token [command]") || strings.Contains(out, "fairlead token [flags]") {
		t.Errorf("the help of a command of commands:\n%s", out)
	}
}

// Envoy runs in another directory than the one that a path of it was typed in.
func TestEnvoyPath(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		envoy string
		kept  bool
	}{{"envoy", true}, {"/opt/envoy", true}, {"bin/envoy", false}, {"./envoy", false}} {
		f := agentFlags{envoy: c.envoy, onStop: "leave", proxyOutput: outputFile, role: roleEdge, balancing: balancingFlags{plane: planeNone, bpfDir: defaultBPFDir}}
		if err := f.check(); err != nil {
			t.Fatal(err)
		}
		if kept := f.envoy == c.envoy; kept != c.kept || !kept && !strings.HasPrefix(f.envoy, "/") {
			t.Errorf("--envoy %s becomes %s", c.envoy, f.envoy)
		}
	}
}
