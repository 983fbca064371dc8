package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
)

const (
	// kubeconfigVariable says that this process is on the client machine, and where the
	// cluster's kubeconfig is.
	kubeconfigVariable = "FAIRLEAD_CONFORMANCE_KUBECONFIG"
	// holdVariable keeps a cluster up for runs to come: SIGHUP starts plane and agents
	// again, with the binary as it is then.
	holdVariable = "FAIRLEAD_CONFORMANCE_HOLD"
	// versionVariable is what `fairlead --version` says.
	versionVariable = "FAIRLEAD_CONFORMANCE_VERSION"
	// heldName is the lab's name when it is held; other runs use the held one.
	heldName = "conformance"
)

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	flag.Parse()
	if os.Geteuid() != 0 || os.Getenv(kubeconfigVariable) != "" || !wantsCluster() {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	status, err := runInside(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// wantsCluster reports whether one of the tests that this process is asked for needs a cluster.
func wantsCluster() bool {
	pattern, _, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	asked, err := regexp.Compile(pattern)
	return flag.Lookup("test.list").Value.String() == "" && !testing.Short() &&
		(err != nil || asked.MatchString("TestGatewayAPI") || asked.MatchString("TestGatewayAPIExperimental"))
}

// runInside runs this program again on the client machine of a site, and returns what it
// ended with.
func runInside(ctx context.Context) (status int, err error) {
	if os.Getenv(holdVariable) != "" {
		return 0, hold(ctx)
	}
	// Reports are of fresh clusters.
	if s, err := lab.Read(lab.DefaultDir, heldName); err == nil && s.OwnerAlive() && os.Getenv(reportsVariable) == "" {
		fmt.Fprintf(os.Stderr, "conformance: using the cluster that process %d holds\n", s.Owner.ID)
		held, err := openSite(heldName)
		if err != nil {
			return 1, err
		}
		defer held.cluster.Lab.Close()
		return held.run(ctx)
	}
	s, err := startSite(ctx, fmt.Sprintf("conformance-%d", os.Getpid()))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return s.run(ctx)
}

// run runs this program on the client machine.
func (s *site) run(ctx context.Context) (int, error) {
	command := s.cluster.Lab.Machine(suiteMachine).Command(ctx, os.Args...)
	command.Env = append(os.Environ(), kubeconfigVariable+"="+s.cluster.Kubeconfig(), versionVariable+"="+versionOf(ctx, s.rig.Binary),
		"NO_PROXY=*", "no_proxy=*")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(unix.SIGINT) }
	command.WaitDelay = 10 * time.Second
	err := command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil // it has said why
	}
	return 0, err
}

// versionOf is the version of a binary of Fairlead's.
func versionOf(ctx context.Context, binary string) string {
	out, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "fairlead ")
}

// hold keeps a site until ctx ends.
func hold(ctx context.Context) (err error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, unix.SIGHUP)
	s, err := startSite(ctx, heldName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for {
		fmt.Printf("conformance: held: kubeconfig %s, namespace %s, logs %s; kill -HUP %d starts Fairlead again\n",
			s.cluster.Kubeconfig(), s.cluster.Lab.Machine(suiteMachine).Namespace(), s.cluster.Lab.State().Dir()+"/logs", os.Getpid())
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			if err := s.restart(ctx); err != nil {
				return err
			}
		}
	}
}
