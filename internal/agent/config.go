package agent

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config of an Agent. Fields that are not called optional and have no default are
// required.
type Config struct {
	Name    string      // of the machine
	Planes  []string    // host:port of the planes' agent endpoints
	Token   TokenSource // used only when there is no valid identity; optional
	Account *Account    // the same, instead of a token: this agent runs in a pod; optional
	Role    string      // that the machine is to have, for which a token must be; optional
	DataDir string      // identity and stored state
	RunDir  string      // sockets and secrets; should be a tmpfs
	// Addresses are those by which other machines reach this one. With an error, it returns
	// those that were known last.
	Addresses func() ([]netip.Addr, error)
	Proxy     Proxy
	Drainer   Drainer // of the proxy's connections; optional
	// ProxyDrain is how long the proxy takes to end the connections of a listener that
	// changed; then it closes them. Default 30 s.
	ProxyDrain time.Duration
	Network    Network   // optional
	Balancing  Balancing // optional
	Checking   Checking  // of backends; optional
	// DrainOnStop takes the machine out of the traffic before the agent ends. Otherwise
	// the proxy and the routes to it stay for the next agent.
	DrainOnStop bool
	Version     string // of this program, for reports
	Log         *slog.Logger
	Now         func() time.Time
	Rand        *rand.Rand            // for jitter; the agent alone uses it
	Registerer  prometheus.Registerer // optional
}

// check says what is missing.
func (c Config) check() error {
	switch {
	case c.Name == "":
		return errors.New("agent: the machine has no name")
	case len(c.Planes) == 0:
		return errors.New("agent: no plane is given")
	case c.DataDir == "" || c.RunDir == "":
		return errors.New("agent: data and run directory are required")
	case c.Addresses == nil || c.Proxy == nil || c.Log == nil || c.Now == nil || c.Rand == nil:
		return errors.New("agent: Addresses, Proxy, Log, Now and Rand are required")
	}
	return nil
}

// SocketPath is where an agent with that run directory serves its Envoy.
func SocketPath(runDir string) string { return filepath.Join(runDir, "xds.sock") }
