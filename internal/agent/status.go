package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Healthz is nil while the agent runs. A failure to store the state is in its Status and
// metrics: a restart would not repair a full disk, and would lose the state in memory.
func (a *Agent) Healthz(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started {
		return errors.New("not started")
	}
	return nil
}

// Readyz is nil while Envoy serves a state, with or without a plane.
func (a *Agent) Readyz(context.Context) error {
	if blocked := a.planeLink.unjoined(); blocked != nil && !a.desired.latest().whole {
		return fmt.Errorf("not joined: %w", blocked)
	}
	if s := a.config.Proxy.Status(); s.State != proxyReady && s.State != proxyOff && s.State != proxyNone {
		return fmt.Errorf("the proxy is %s: %s", s.State, s.Message)
	}
	return a.relay.waits()
}

// Status is an agent for people and the console.
type Status struct {
	Machine string `json:"machine"`
	Version string `json:"version"`
	Plane   string `json:"plane,omitempty"` // connected to; empty when to none
	Trouble string `json:"trouble,omitempty"`
	// Forgetting says why the state is not stored; empty while it is.
	Forgetting string `json:"forgetting,omitempty"`
	// Withheld says why the proxy waits for a state; empty while it does not, or while there is none.
	Withheld string            `json:"withheld,omitempty"`
	Expires  time.Time         `json:"certificateExpires,omitzero"`
	Cordoned bool              `json:"cordoned"`
	Accepted string            `json:"accepted"` // revision that a plane has sent
	Applied  string            `json:"applied"`  // revision that the proxy runs
	Problems []Problem         `json:"problems"`
	Proxy    model.ProxyStatus `json:"proxy"`
	// Sessions with BGP peers and VIPs, as the machine sees them.
	Sessions []model.Session     `json:"sessions"`
	VIPs     []model.VIPObserved `json:"vips"`
	// Unhealthy are the checks of this machine that fail; the plane counts those of others too.
	Unhealthy []model.CheckResult `json:"unhealthy"`
	// Frontends that the machine balances or has backends of.
	Frontends []model.FrontendObserved `json:"frontends"`
	// Interfaces at which data planes have programs, or could have.
	Interfaces []model.InterfaceObserved `json:"interfaces"`
}

// Problem is one resource that the proxy does not run as the plane requires.
type Problem struct {
	Kind    string `json:"kind"` // refused or waiting
	Type    string `json:"type"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

// Status is the agent as it is now. A cordoned machine keeps its listeners; the plane
// drains them by removing them from the machine's view.
func (a *Agent) Status() Status {
	received, applied := a.desired.latest(), a.relay.applied()
	s := Status{
		Machine: a.config.Name, Version: a.config.Version, Cordoned: received.config.GetCordoned(),
		Accepted: received.revision.String(), Applied: a.relay.revisionApplied().String(), Problems: []Problem{}, Proxy: a.config.Proxy.Status(),
		Sessions: a.announcer.sessions(), VIPs: a.announcer.observed(), Frontends: a.balancer.observed(), Interfaces: a.balancer.interfaces(), Unhealthy: a.checks.unhealthy(),
	}
	var err error
	if s.Plane, err = a.planeLink.status(); err != nil {
		s.Trouble = err.Error()
	}
	if err := a.planeLink.unjoined(); err != nil {
		s.Trouble = err.Error()
	}
	if err := a.keeper.healthy(); err != nil {
		s.Forgetting = "traffic continues, but the state cannot be stored: " + err.Error()
	}
	s.Withheld = a.relay.withholds()
	if id := a.membership.current(); id != nil {
		s.Expires = id.NotAfter()
	}
	for _, p := range applied.GetProblems() {
		kind := "refused"
		if p.GetKind() == agentv1.Problem_KIND_WAITING {
			kind = "waiting"
		}
		s.Problems = append(s.Problems, Problem{Kind: kind, Type: p.GetTypeUrl(), Name: p.GetName(), Message: p.GetMessage()})
	}
	return s
}
