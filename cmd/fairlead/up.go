package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/agent"
	"fairlead.dev/internal/driver/proxy"
	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/plane"
	apisource "fairlead.dev/internal/source/api"
)

func newUp(logs *logFlags) *cobra.Command {
	planeOptions, agentOptions := &planeFlags{}, &agentFlags{}
	c := &cobra.Command{
		Use:     "up",
		Short:   "Run everything on this machine: API, plane, agent and Envoy",
		GroupID: groupRun,
		Long: `Run everything on this machine: the Kubernetes API, the plane and an agent in this process,
and an Envoy. Other machines can join its plane.

Ctrl-C drains Envoy and stops everything; the data stays. A second Ctrl-C ends this process
at once and leaves Envoy and the VIPs to the next start. If the API or the plane fails, this
process ends, and Envoy keeps serving until the next start.`,
		Example: `  fairlead up
  export KUBECONFIG=` + filepath.Join(defaultPlaneDir, defaultKubeconfigName) + `
  kubectl apply -f routes.yaml
  fairlead status`,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := logs.logger()
			if err != nil {
				return err
			}
			if err := agentOptions.check(); err != nil {
				return err
			}
			if err := planeOptions.check(); err != nil {
				return err
			}
			if err := agentOptions.makeDirs(); err != nil {
				return err
			}
			// Found out now: the agent starts long after the API.
			if err := agentOptions.findEnvoy(log); err != nil {
				return err
			}
			own, err := listenConsole(agentOptions.consoleAddress, "agent", agentOptions.prefix, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			own.Close()
			defer finalMessage(c.Context(), c.ErrOrStderr(), agentOptions.left(), endBy)()
			return runPlane(c.Context(), planeOptions, log, &companion{
				await: func(ctx context.Context, ready func(context.Context) error) error {
					return awaitPlane(ctx, agentOptions.dataDir, ready)
				},
				run: func(ctx context.Context, api embedded.API, advertise netip.Addr) error {
					agentOptions.planes = []string{net.JoinHostPort(advertise.String(), strconv.Itoa(int(planeOptions.agentPort)))}
					return runOwnAgent(ctx, agentOptions, api, log)
				},
			})
		},
	}
	planeOptions.add(c)
	agentOptions.add(c, "agent-", proxy.Drain)
	return c
}

// awaitPlane waits until the plane serves agents, if the agent has nothing to serve
// before: it would only report that no plane takes it. One that remembers a state goes on
// from it at once.
func awaitPlane(ctx context.Context, agentDir string, ready func(context.Context) error) error {
	if agent.Remembers(agentDir) {
		return nil
	}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for ready(ctx) != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return nil
}

// runOwnAgent runs an agent beside the plane. It joins like every other one, with a token
// that is made when the agent asks for it: one that has joined before needs none. There is
// one at most, and soon after the start: a Machine that is deleted later stays out.
func runOwnAgent(ctx context.Context, a *agentFlags, api embedded.API, log *slog.Logger) error {
	name, err := a.machineName()
	if err != nil {
		return err
	}
	a.token = onceBefore(time.Now().Add(ownTokenTTL), func(ctx context.Context) (string, error) { return ownToken(ctx, api, name, a.role) })
	return runAgent(ctx, a, log)
}

// ownTokenTTL is how long the token of the plane's own agent can be used.
const ownTokenTTL = 10 * time.Minute

// onceBefore has one token, that of the first call of create that succeeds, and none where that was
// not asked for in time.
func onceBefore(end time.Time, create agent.TokenSource) agent.TokenSource {
	token := ""
	return func(ctx context.Context) (string, error) {
		if token != "" {
			return token, nil
		}
		if time.Now().After(end) {
			return "", agent.ErrNoToken
		}
		var err error
		token, err = create(ctx)
		return token, err
	}
}

// ownToken makes a token for the agent of that name and role.
func ownToken(ctx context.Context, api embedded.API, name, role string) (string, error) {
	client, err := apisource.NewClient(api.RESTConfig())
	if err != nil {
		return "", fmt.Errorf("get a token: %w", err)
	}
	token, err := plane.CreateToken(ctx, client, plane.TokenRequest{Machine: name, Role: role, TTL: ownTokenTTL, Now: time.Now()})
	if err != nil {
		return "", fmt.Errorf("get a token: %w", err)
	}
	return token, nil
}
