package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"time"
)

// Defaults of a HealthCheck.
const (
	DefaultCheckInterval = 5 * time.Second
	DefaultCheckTimeout  = 2 * time.Second
	DefaultCheckJitter   = 10 // percent
	DefaultFall          = 3
	DefaultRise          = 2
)

// PresumedCheck is how backends of TCP are asked where nobody says how: for a connection each
// second, and out after three that failed.
func PresumedCheck() *HealthCheck {
	return &HealthCheck{
		Kind: CheckTCP, Interval: time.Second, Timeout: time.Second / 2, Jitter: DefaultCheckJitter, Unhealthy: DefaultFall, Healthy: DefaultRise, Presumed: true,
	}
}

// Check is a backend that a machine is asked to check.
type Check struct {
	ID     string         `json:"id"` // of target and parameters alike
	Target netip.AddrPort `json:"target"`
	HealthCheck
	// Prompt grows when the target is to be asked at once, whatever the interval.
	Prompt uint64 `json:"prompt,omitempty"`
	// Namespaces whose Services the backend is of, sorted; only of presumed checks. Each has a
	// fair share of the checks and of the probes that nobody asked for.
	Namespaces []string `json:"namespaces,omitempty"`
}

// CheckResult is what a machine found.
type CheckResult struct {
	ID      string    `json:"id"`
	Health  Health    `json:"health"`
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message,omitempty"` // the last failure
	// First says that the first answer was a bad one, and that there were not yet as many bad ones in
	// a row as take a backend out that works: where others know better, it decides nothing.
	First bool `json:"first,omitempty"`
}

// FairShare is how much of a total each may have at most, so that nobody who wants less than
// others goes without while these have more (max-min fairness); math.MaxInt where the total is
// enough for all.
func FairShare(total int, wants []int) int {
	wants = slices.Sorted(slices.Values(wants))
	for i, w := range wants {
		if share := total / (len(wants) - i); w > share {
			return share
		}
		total -= w
	}
	return math.MaxInt
}

// CheckFigures are what was asked in one way, since the agent began.
type CheckFigures struct {
	Kind CheckKind
	// Ended are the probes that ended, by how: "good", or the kind of failure.
	Ended map[string]uint64
	// Seconds that they took together, and how many took no longer than each bound.
	Seconds float64
	Within  map[float64]uint64
}

// NewCheck is the check of a backend. Its ID is a function of where and how it asks:
// frontends and routes that want the same of a backend share a check, and nobody finds another that has it too.
func NewCheck(backend netip.AddrPort, how HealthCheck) Check {
	how = how.complete()
	c := Check{Target: netip.AddrPortFrom(backend.Addr().Unmap().WithZone(""), cmp.Or(how.Port, backend.Port())), HealthCheck: how}
	c.Port = 0 // it is the target's
	text, err := json.Marshal(c.HealthCheck)
	if err != nil {
		panic("a check that cannot be written: " + err.Error()) // it is made of texts and numbers
	}
	sum := sha256.Sum256(text)
	c.ID = c.Target.String() + "/" + hex.EncodeToString(sum[:16])
	return c
}

// Presumed says that the group's backends are checked although nobody asked for it: those of
// connections are, whose proxies see no requests that fail.
func (g *BackendGroup) Presumed() bool { return g.HealthCheck == nil && g.Protocol == BackendTCP }

// Check is how a backend of the group is checked: asked as requests are, with TLS where they
// have it and in their HTTP version. ok is false where the group has no health check. A
// presumed check is the one that frontends of TCP have.
func (g *BackendGroup) Check(backend netip.AddrPort) (c Check, ok bool) {
	switch {
	case g.Presumed():
		return NewCheck(backend, *PresumedCheck()), true
	case g.HealthCheck == nil:
		return Check{}, false
	}
	how := *g.HealthCheck
	if how.Kind == CheckHTTP {
		switch {
		case g.TLS != nil:
			how.Kind, how.ServerName = CheckHTTPS, g.TLS.ServerName
		case g.Protocol == BackendHTTP2:
			how.Kind = CheckHTTP2
		}
	}
	how.SendProxyProtocol = g.SendProxyProtocol
	return NewCheck(backend, how), true
}

// complete puts the defaults in the place of zero values.
func (h HealthCheck) complete() HealthCheck {
	h.Interval = cmp.Or(max(h.Interval, 0), DefaultCheckInterval)
	h.Timeout = cmp.Or(max(h.Timeout, 0), DefaultCheckTimeout)
	h.Jitter = min(cmp.Or(h.Jitter, DefaultCheckJitter), 100)
	h.Unhealthy = cmp.Or(h.Unhealthy, DefaultFall)
	h.Healthy = cmp.Or(h.Healthy, DefaultRise)
	return h
}
